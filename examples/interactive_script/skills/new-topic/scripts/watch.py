"""Says how many events a topic has, until it is ended."""

import itertools
import time


def main() -> None:
    for events in itertools.count(120, 40):
        print(f"{events} events", flush=True)
        time.sleep(0.2)


if __name__ == "__main__":
    main()
