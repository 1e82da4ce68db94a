"""Skills for episodes with small models: instructions, a reference whose content a script needs, and the script.

Prompts and schemas were improved with the *tuned* skills only. The *held-out* skills differ from them in the words of
their instructions and in the arguments of their scripts. The scripts of the *whole-event* skills read the event on
standard input, and the answer depends on all its fields.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["SETS", "Episode", "FixtureSkill", "episodes", "write_skills"]

_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True)
class FixtureSkill:
    """One skill, and the questions that need it.

    ``questions`` have the arguments of the script that are right for each. One of these is only in the reference.
    ``events`` are for a script that reads the event instead.
    """

    name: str
    description: str
    body: str
    reference: str
    table: str
    script: str
    code: str
    questions: Mapping[str, tuple[str, ...]]
    events: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Episode:
    """One event with its question, and what its turn must contain."""

    number: int
    event: Mapping[str, Any]
    question: str
    skill: FixtureSkill
    arguments: tuple[str, ...]
    answer: str


def write_skills(skills: tuple[FixtureSkill, ...], folder: Path) -> None:
    """Write the skills into a folder for ``--skills``."""
    for skill in skills:
        home = folder / skill.name
        for name, text in (
            ("SKILL.md", f"---\nname: {skill.name}\ndescription: {skill.description}\n---\n{skill.body}"),
            (skill.reference, skill.table),
            (skill.script, skill.code),
        ):
            if not name:
                continue
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text, "utf-8")


def episodes(skills: tuple[FixtureSkill, ...], folder: Path) -> list[Episode]:
    """Return the episodes of the skills in ``folder``, with the answers that their scripts give."""
    found: list[Episode] = []
    for skill in skills:
        command = [sys.executable, str(folder / skill.name / skill.script)]
        asked = [({"question": question}, question, arguments) for question, arguments in skill.questions.items()]
        # A right command contains the script, which has no arguments.
        asked += [(dict(event), json.dumps(event), (skill.script,)) for event in skill.events]
        for event, question, arguments in asked:
            given = () if event in skill.events else arguments
            printed = subprocess.run(
                [*command, *given], capture_output=True, text=True, check=True, input=json.dumps(event)
            ).stdout
            (answer,) = _NUMBER.findall(printed)
            found.append(Episode(len(found), event, question, skill, arguments, answer))
    return found


_PARCEL = FixtureSkill(
    "parcel-fees",
    "Compute the fee of a parcel by country and weight. Use when somebody asks what sending a parcel costs.",
    """# Parcel fees

1. Read `references/zones.md`: it has the zone of each country.
2. Run the script with the zone and the weight in kilograms:

   ```bash
   python3 scripts/fee.py ZONE KILOGRAMS
   ```

3. Answer with the fee that it prints.
""",
    "references/zones.md",
    "# Zones\n\n| country | zone |\n|---|---|\n| Austria | A1 |\n| Chile | D4 |\n| Finland | B2 |\n| Japan | D2 |\n"
    "| Norway | C3 |\n| Portugal | B7 |\n",
    "scripts/fee.py",
    "import sys\n\nbase = {'A1': 4.15, 'B2': 7.35, 'B7': 6.85, 'C3': 9.25, 'D2': 17.45, 'D4': 21.65}\n"
    "zone, weight = sys.argv[1:]\nprint(f'fee: {base[zone] + 1.37 * float(weight):.2f} EUR')\n",
    {
        "What does it cost to send a parcel of 3 kg to Norway?": ("C3", "3"),
        "A customer wants to ship a parcel to Japan. It weighs 5 kg. What is the fee?": ("D2", "5"),
        "Fee for a 2 kg parcel to Portugal, please.": ("B7", "2"),
        "We send 8 kg to Finland as one parcel. How much is it?": ("B2", "8"),
        "How much is a parcel of 4 kg to Chile?": ("D4", "4"),
    },
)

_ROOM = FixtureSkill(
    "room-rates",
    "Price of hotel rooms on business trips, by city and nights. Use for questions about hotel costs of a trip.",
    """# Room rates

Cities belong to rate classes. The class of each city is in `references/cities.md`. Look it up first.

Then compute the price:

```bash
python3 scripts/rate.py --class CLASS --nights NIGHTS
```

Give the price from the output in one sentence.
""",
    "references/cities.md",
    "# Rate classes of cities\n\n- Berlin: K14\n- Geneva: K31\n- Lisbon: K17\n- London: K29\n- Warsaw: K11\n",
    "scripts/rate.py",
    "import argparse\n\nparser = argparse.ArgumentParser()\nparser.add_argument('--class', dest='of', required=True)\n"
    "parser.add_argument('--nights', type=int, required=True)\noptions = parser.parse_args()\n"
    "rate = {'K11': 83, 'K14': 109, 'K17': 97, 'K29': 187, 'K31': 223}[options.of]\n"
    "print(f'price: {rate * options.nights + 19} EUR')\n",
    {
        "What will a hotel in London cost for 3 nights?": ("--class", "K29", "--nights", "3"),
        "I travel to Warsaw and stay 2 nights. What is the price of the room?": ("--class", "K11", "--nights", "2"),
        "Hotel costs for 4 nights in Geneva?": ("--class", "K31", "--nights", "4"),
        "Business trip to Lisbon, 5 nights: what do we pay for the hotel?": ("--class", "K17", "--nights", "5"),
        "How expensive is a room in Berlin for 6 nights?": ("--class", "K14", "--nights", "6"),
    },
)

_PAINT = FixtureSkill(
    "paint-need",
    "How many liters of paint a wall needs, by its material and area. Use for orders and questions about paint.",
    """# Paint need

Every material has a code in the file `references/materials.md`. Read the file, then run
`python3 scripts/liters.py CODE AREA` with the code of the material and the area in square meters.
The answer states the liters that the script prints.
""",
    "references/materials.md",
    "material = code\nbrick = 412\nconcrete = 377\nplaster = 208\nwood = 561\n",
    "scripts/liters.py",
    "import sys\n\nper_liter = {'412': 5.2, '377': 6.1, '208': 8.7, '561': 7.3}\n"
    "print(f'{float(sys.argv[2]) / per_liter[sys.argv[1]] + 0.4:.1f} liters')\n",
    {
        "How much paint do I need for 40 square meters of brick?": ("412", "40"),
        "Paint for a wall of concrete, 25 square meters. How many liters?": ("377", "25"),
        "We paint 90 square meters of plaster. What do we order?": ("208", "90"),
        "A fence of wood has 33 square meters. How many liters of paint?": ("561", "33"),
        "Please compute the paint for 120 square meters of concrete.": ("377", "120"),
    },
)

_LOAN = FixtureSkill(
    "loan-rates",
    "Monthly payment of a loan by its product and amount. Use when a customer asks what a loan costs each month.",
    """# Loan rates

## Find the tariff

Each product has a tariff number. `references/products.md` lists them.

## Compute

```bash
python3 scripts/monthly.py --amount EUROS --tariff NUMBER
```

## Answer

State the monthly payment that was printed.
""",
    "references/products.md",
    "| product | tariff |\n|---|---|\n| car loan | 7205 |\n| green loan | 7118 |\n| house loan | 7341 |\n"
    "| student loan | 7056 |\n",
    "scripts/monthly.py",
    "import argparse\n\nparser = argparse.ArgumentParser()\n"
    "parser.add_argument('--amount', type=float, required=True)\n"
    "parser.add_argument('--tariff', required=True)\noptions = parser.parse_args()\n"
    "rate = {'7205': 0.0213, '7118': 0.0167, '7341': 0.0059, '7056': 0.0121}[options.tariff]\n"
    "print(f'monthly payment: {options.amount * rate:.2f} EUR')\n",
    {
        "What do I pay each month for a car loan of 12000 euros?": ("--amount", "12000", "--tariff", "7205"),
        "A student loan of 8000 euros: what is the monthly payment?": ("--amount", "8000", "--tariff", "7056"),
        "I want a house loan of 250000 euros. What is due each month?": ("--amount", "250000", "--tariff", "7341"),
        "Monthly payment of a green loan of 5000 euros?": ("--amount", "5000", "--tariff", "7118"),
        "How much per month is a car loan of 30000 euros?": ("--amount", "30000", "--tariff", "7205"),
    },
)

_DUTY = FixtureSkill(
    "import-duty",
    "Import duty of goods by kind and value. Use to find what customs charge for a shipment.",
    """# Import duty

Customs classify goods by a tariff code.

1. Find the code of the goods in `references/codes.md`.
2. Execute `python3 scripts/duty.py CODE VALUE`. VALUE is the value of the goods in euros.
3. Report the duty.
""",
    "references/codes.md",
    "# Tariff codes\n\nbicycles: 8712\ncoffee: 0901\nguitars: 9202\nshoes: 6403\ntents: 6306\n",
    "scripts/duty.py",
    "import sys\n\npercent = {'8712': 14.0, '0901': 7.5, '9202': 3.2, '6403': 8.0, '6306': 12.0}\n"
    "code, value = sys.argv[1:]\nprint(f'duty: {float(value) * percent[code] / 100 + 6.11:.2f} EUR')\n",
    {
        "We import guitars worth 900 euros. Which duty do we pay?": ("9202", "900"),
        "A shipment of shoes has a value of 2400 euros. What will customs charge?": ("6403", "2400"),
        "Duty for coffee with a value of 700 euros?": ("0901", "700"),
        "What is the import duty on bicycles worth 5100 euros?": ("8712", "5100"),
        "Our tents are worth 1300 euros. How much duty is due?": ("6306", "1300"),
    },
)

_MACHINE = FixtureSkill(
    "machine-costs",
    "Costs of machines in the workshop by hours of use. Use for questions about the price of machine time.",
    """# Machine costs

The script needs the cost group of the machine. You find the group in the list `references/groups.md`.

```bash
python3 scripts/cost.py --group GROUP --hours HOURS
```

Tell the user the costs.
""",
    "references/groups.md",
    "| machine | group |\n|---|---|\n| lathe | M-3 |\n| laser cutter | M-8 |\n| mill | M-5 |\n| press | M-2 |\n",
    "scripts/cost.py",
    "import argparse\n\nparser = argparse.ArgumentParser()\nparser.add_argument('--group', required=True)\n"
    "parser.add_argument('--hours', type=float, required=True)\noptions = parser.parse_args()\n"
    "hourly = {'M-3': 37.9, 'M-8': 88.3, 'M-5': 54.7, 'M-2': 29.1}[options.group]\n"
    "print(f'costs: {hourly * options.hours + 12:.2f} EUR')\n",
    {
        "What do 4 hours on the lathe cost?": ("--group", "M-3", "--hours", "4"),
        "We need the laser cutter for 2 hours. What is the price?": ("--group", "M-8", "--hours", "2"),
        "Costs of 7 hours of the mill?": ("--group", "M-5", "--hours", "7"),
        "The press will run for 9 hours. How much is that?": ("--group", "M-2", "--hours", "9"),
        "How much is the laser cutter for 6 hours?": ("--group", "M-8", "--hours", "6"),
    },
)

_FINE = FixtureSkill(
    "library-fines",
    "Fines of the library for items that are returned late. Use when a reader asks what a late return costs.",
    """# Library fines

First read `references/items.md`, which maps items to letters. Then run:

    python3 scripts/fine.py LETTER DAYS

DAYS is how many days late the item is. Answer with the fine.
""",
    "references/items.md",
    "Letters of items\n\n* atlas - Q\n* comic - F\n* DVD - W\n* novel - H\n* magazine - Z\n",
    "scripts/fine.py",
    "import sys\n\ndaily = {'Q': 1.15, 'F': 0.35, 'W': 0.85, 'H': 0.45, 'Z': 0.25}\n"
    "letter, days = sys.argv[1:]\nprint(f'fine: {daily[letter] * int(days) + 0.6:.2f} EUR')\n",
    {
        "I return a novel 12 days late. What is the fine?": ("H", "12"),
        "My DVD is 9 days late. How much do I pay?": ("W", "9"),
        "Fine for an atlas that is 21 days late?": ("Q", "21"),
        "A reader brings a comic back 30 days late. What does it cost?": ("F", "30"),
        "The magazine is 15 days late, what is the fine?": ("Z", "15"),
    },
)

_STORAGE = FixtureSkill(
    "storage-prices",
    "Price of cloud storage by region, gigabytes and months. Use to estimate what stored data costs.",
    """# Storage prices

## Steps

- Look up the id of the region in `references/regions.md`.
- Compute the price with this command:

```bash
python3 scripts/price.py --region ID --gigabytes GB --months MONTHS
```

- Reply with the price in one sentence.
""",
    "references/regions.md",
    "# Regions\n\n1. Frankfurt (id 18)\n2. Mumbai (id 44)\n3. Oregon (id 27)\n4. Sydney (id 63)\n",
    "scripts/price.py",
    "import argparse\n\nparser = argparse.ArgumentParser()\nfor name in ('--region', '--gigabytes', '--months'):\n"
    "    parser.add_argument(name, type=int, required=True)\noptions = parser.parse_args()\n"
    "cents = {18: 2.3, 44: 2.9, 27: 1.9, 63: 3.1}[options.region]\n"
    "print(f'price: {cents * options.gigabytes * options.months / 100 + 1.5:.2f} USD')\n",
    {
        "What does it cost to store 500 gigabytes in Frankfurt for 6 months?": (
            *("--region", "18", "--gigabytes", "500", "--months", "6"),
        ),
        "Price of 200 gigabytes in Sydney for 3 months?": (*("--region", "63", "--gigabytes", "200", "--months", "3"),),
        "We keep 800 gigabytes in Oregon for 12 months. How much is it?": (
            *("--region", "27", "--gigabytes", "800", "--months", "12"),
        ),
        "Storage in Mumbai: 150 gigabytes, 4 months. What do we pay?": (
            *("--region", "44", "--gigabytes", "150", "--months", "4"),
        ),
        "How expensive are 900 gigabytes in Frankfurt for 2 months?": (
            *("--region", "18", "--gigabytes", "900", "--months", "2"),
        ),
    },
)

_ORDER = FixtureSkill(
    "order-totals",
    "Total of an order with its discount and shipping. Use for events with an order.",
    """# Order totals

Pass the event on standard input:

```bash
python3 scripts/total.py
```

The script prints the total. Answer with it.
""",
    "",
    "",
    "scripts/total.py",
    "import json, sys\n\norder = json.load(sys.stdin)['order']\n"
    "lines = sum(line['pieces'] * line['price'] for line in order['lines'])\n"
    "print(f\"total: {lines * (1 - order['discount'] / 100) + order['shipping']:.2f} EUR\")\n",
    {},
    (
        {
            "order": {
                "lines": [{"pieces": 3, "price": 7.45}, {"pieces": 1, "price": 12.9}],
                "discount": 5,
                "shipping": 4.9,
            }
        },
        {"order": {"lines": [{"pieces": 12, "price": 0.85}], "discount": 0, "shipping": 3.25}, "customer": "Ines"},
        {
            "order": {
                "lines": [{"pieces": 2, "price": 31.5}, {"pieces": 5, "price": 2.2}],
                "discount": 12,
                "shipping": 0,
            }
        },
    ),
)

_SENSOR = FixtureSkill(
    "sensor-drift",
    "Drift of a sensor from its readings. Use when an event has readings of a sensor.",
    """# Sensor drift

1. Run `python3 scripts/drift.py`. It reads the complete event as JSON from stdin.
2. Report the drift that it prints.
""",
    "",
    "",
    "scripts/drift.py",
    "import json\nimport sys\n\nevent = json.loads(sys.stdin.read())\n"
    "values = [one['value'] for one in event['readings']]\n"
    "middle = sum(values) / len(values)\nprint(f\"drift: {middle - event['calibration']['zero']:.3f}\")\n",
    {},
    (
        {"sensor": "t-4", "readings": [{"value": 4.1}, {"value": 4.4}, {"value": 5.3}], "calibration": {"zero": 3.869}},
        {"sensor": "p-9", "readings": [{"value": 101.25}, {"value": 99.5}], "calibration": {"zero": 88.112}},
        {
            "sensor": "h-2",
            "readings": [{"value": 0.41}, {"value": 0.47}, {"value": 0.62}],
            "calibration": {"zero": 0.277},
        },
    ),
)

_SHIFT = FixtureSkill(
    "shift-pay",
    "Pay of a worker for shifts. Use for a request about what shifts pay.",
    """# Shift pay

The pay depends on all shifts of the request. Give the request to the script on its standard input, unchanged:

    python3 scripts/pay.py

State the pay in one sentence.
""",
    "",
    "",
    "scripts/pay.py",
    "import json, sys\nevent = json.load(sys.stdin)\nrates = {'day': 17.3, 'night': 24.1, 'holiday': 33.7}\n"
    "pay = sum(rates[shift['kind']] * shift['hours'] for shift in event['shifts'])\n"
    "print(f\"pay: {pay + event['bonus']:.2f} EUR\")\n",
    {},
    (
        {"worker": "Ada", "shifts": [{"kind": "day", "hours": 8}, {"kind": "night", "hours": 6}], "bonus": 15.5},
        {"worker": "Ben", "shifts": [{"kind": "holiday", "hours": 4}], "bonus": 0},
        {"worker": "Cleo", "shifts": [{"kind": "day", "hours": 7.5}, {"kind": "day", "hours": 5}], "bonus": 9.25},
    ),
)

_ROUTE = FixtureSkill(
    "route-cost",
    "Cost of a delivery route with its stops. Use for events about a route.",
    """# Route cost

Compute the cost of the route with `scripts/cost.py`. The script wants the event as JSON on its standard input.

```bash
cat EVENT | python3 scripts/cost.py
```

Answer with the cost.
""",
    "",
    "",
    "scripts/cost.py",
    "import json, sys\nevent = json.load(sys.stdin)\nlength = sum(stop['km'] for stop in event['stops'])\n"
    "print(f\"cost: {length * event['vehicle']['per_km'] + 2.4 * len(event['stops']):.2f} EUR\")\n",
    {},
    (
        {"stops": [{"km": 12.5}, {"km": 7.1}, {"km": 3.3}], "vehicle": {"name": "van", "per_km": 0.62}},
        {"stops": [{"km": 44}, {"km": 18.75}], "vehicle": {"name": "truck", "per_km": 1.35}},
        {"stops": [{"km": 2.2}], "vehicle": {"name": "bike", "per_km": 0.11}},
    ),
)

SETS = {
    "tuned": (_PARCEL, _ROOM, _PAINT, _LOAN),
    "held-out": (_DUTY, _MACHINE, _FINE, _STORAGE),
    "whole-event": (_ORDER, _SENSOR, _SHIFT, _ROUTE),
}
