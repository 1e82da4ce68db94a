"""A Python user function that throws on a record without the field it reads."""

from __future__ import annotations

import json

from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment


def score(line: str) -> float:
    rating = json.loads(line)
    return rating["stars"] * rating["weight"]


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    ratings = [json.dumps({"stars": n % 5 + 1, "weight": 0.5}) for n in range(200)]
    ratings.append(json.dumps({"stars": 4}))
    stream = env.from_collection(ratings, type_info=Types.STRING())
    stream.map(score, output_type=Types.DOUBLE()).name("score-rating").print()
    env.execute("ratings-scoring")


if __name__ == "__main__":
    main()
