"""Skills for episodes with small models: instructions, a reference whose content a script needs, and the script.

Prompts and schemas were improved with the *tuned* skills only. The *held-out* skills differ from them in the words of
their instructions and in the arguments of their scripts.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["SETS", "Episode", "FixtureSkill", "episodes", "write_skills"]

_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True)
class FixtureSkill:
    """One skill, and the questions that need it.

    ``questions`` have the arguments of the script that are right for each. One of these is only in the reference.
    """

    name: str
    description: str
    body: str
    reference: str
    table: str
    script: str
    code: str
    questions: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Episode:
    """One question, and what its turn must contain."""

    number: int
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
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text, "utf-8")


def episodes(skills: tuple[FixtureSkill, ...], folder: Path) -> list[Episode]:
    """Return the episodes of the skills in ``folder``, with the answers that their scripts give."""
    found: list[Episode] = []
    for skill in skills:
        for question, arguments in skill.questions.items():
            command = [sys.executable, str(folder / skill.name / skill.script), *arguments]
            printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            (answer,) = _NUMBER.findall(printed)
            found.append(Episode(len(found), question, skill, arguments, answer))
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

SETS = {"tuned": (_PARCEL, _ROOM, _PAINT, _LOAN), "held-out": (_DUTY, _MACHINE, _FINE, _STORAGE)}
