"""``stamp.py PLACE VERSION``: prints the stamp for the parcel on standard input, an event."""

import json
import os
import sys

place, version = sys.argv[1], int(sys.argv[2])
parcel = json.load(sys.stdin)
print(
    json.dumps(
        {"parcel": parcel["incident"], "place": place, "version": version, "call": os.environ["FLINK_SKILLS_CALL_ID"]}
    )
)
