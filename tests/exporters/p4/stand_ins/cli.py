# SPDX-License-Identifier: Apache-2.0
"""Stands in for simple_switch_CLI: its rules of arguments, before the stand-in of the switch.

The rules are those of bmv2 1.15.5 by its help texts and docs/runtime_CLI.md, with what goes wrong
there: nothing behind the handle of table_modify is an IndexError that ends the program, an empty
line runs the line before it again, table_add without => loses its last word, a negative number is
0. Nothing here is of n3ic's own reader.
"""

# ruff: noqa: T201 - the tools that these stand in for print, too

import json
import socket
import sys

PROMPT = "RuntimeCmd: "


class RefusedError(Exception):
    """A command that is answered with an error; the next one is read."""


def options(words, name, otherwise):
    return words[words.index(name) + 1] if name in words else otherwise


class Session:
    def __init__(self, stream):
        self.stream = stream
        self.config = self.call(do="config")
        self.known = {
            "table_set_default": self.set_default,
            "table_add": self.add,
            "table_clear": self.clear,
            "table_modify": self.modify,
            "table_dump": self.dump,
            "table_dump_entry": self.dump_entry,
            "meter_set_rates": self.set_rates,
            "meter_get_rates": self.get_rates,
        }

    def call(self, **request):
        self.stream.write(json.dumps(request) + "\n")
        self.stream.flush()
        answer = json.loads(self.stream.readline())
        if "error" in answer:
            raise RefusedError(f"Invalid {answer['of']} operation ({answer['error']})")
        return answer

    def resource(self, kind, word):
        """The one thing whose name ends so, from a dot on."""
        names = [n for n in self.config[kind] if f".{n}".endswith(f".{word}")]
        if len(names) != 1:
            raise RefusedError(f"Error: Invalid {kind[:-1]} name ({word})")
        return names[0]

    def table_and_action(self, words):
        table = self.resource("tables", words[0])
        endings = [n for n in self.config["actions"] if f".{n}".endswith(f".{words[1]}")]
        if len(endings) != 1 or endings[0] not in self.config["tables"][table]["actions"]:
            raise RefusedError(f"Error: Table {words[0]} has no action {words[1]}")
        return table, endings[0]

    def data(self, action, words):
        widths = self.config["actions"][action]
        if len(words) != len(widths):
            raise RefusedError(f"Error: Action {action} needs {len(widths)} parameters")
        return [number(w, bits, "runtime data") for w, bits in zip(words, widths, strict=True)]

    # --- commands --------------------------------------------------------------------------

    def set_default(self, words):
        expect(len(words) >= 2)
        table, action = self.table_and_action(words)
        data = self.data(action, words[2:])
        print("Setting default action of", words[0])
        self.call(do="default", table=table, action=action, data=data)

    def add(self, words):
        expect(len(words) >= 3)
        table, action = self.table_and_action(words)
        kinds = self.config["tables"][table]["keys"]
        priority = None
        if any(kind != "exact" for _, kind, _ in kinds):
            priority = decimal(words[-1], "Table is ternary, but there is no valid priority")
            words = words[:-1]
        rest = words[2:]
        middle = rest.index("=>") if "=>" in rest else len(rest) - 1
        if middle != len(kinds):
            raise RefusedError(f"Error: Table {words[0]} needs {len(kinds)} key fields")
        data = self.data(action, rest[middle + 1 :])
        keys = [key(word, *kind) for word, kind in zip(rest, kinds, strict=False)]
        print("Adding entry to match table", words[0])
        request = {"table": table, "action": action, "keys": keys, "data": data}
        self.call(do="add", priority=priority, **request)
        print("Entry has been added")

    def clear(self, words):
        expect(len(words) == 1)
        self.call(do="clear", table=self.resource("tables", words[0]))

    def modify(self, words):
        expect(len(words) >= 3)
        table, action = self.table_and_action(words)
        handle = decimal(words[2], "Bad format for entry handle")
        skipped = 4 if words[3] == "=>" else 3  # where the real one ends with an IndexError
        data = self.data(action, words[skipped:])
        print("Modifying entry", handle, "for match table", words[0])
        self.call(do="modify", table=table, handle=handle, action=action, data=data)

    def dump(self, words):
        expect(len(words) == 1)
        table = self.resource("tables", words[0])
        print("==========\nTABLE ENTRIES")
        for handle in range(self.call(do="count", table=table)["count"]):
            print("**********")
            self.show(table, handle)
        print("==========\nDumping default entry")
        self.show_action(self.call(do="get_default", table=table))
        print("==========")

    def dump_entry(self, words):
        expect(len(words) == 2)
        self.show(
            self.resource("tables", words[0]), decimal(words[1], "Bad format for entry handle")
        )

    def set_rates(self, words):
        expect(len(words) >= 2)
        meter = self.resource("meters", words[0])
        index = decimal(words[1], "Bad format for index")
        if len(words) != 4:
            raise RefusedError(
                f"Error: Invalid number of rates, expected 2 but got {len(words) - 2}"
            )
        try:
            rates = [(float(r), int(b)) for r, b in (w.split(":") for w in words[2:])]
        except ValueError as error:
            raise RefusedError("Error: Error while parsing rates") from error
        self.call(do="set_rates", meter=meter, index=index, rates=rates)

    def get_rates(self, words):
        expect(len(words) == 2)
        meter, index = self.resource("meters", words[0]), decimal(words[1], "Bad format for index")
        for number, (rate, burst) in enumerate(
            self.call(do="get_rates", meter=meter, index=index)["rates"]
        ):
            print(f"{number}: info rate = {rate}, burst size = {burst}")

    # --- what is shown ---------------------------------------------------------------------

    def show(self, table, handle):
        entry = self.call(do="get", table=table, handle=handle)
        print(f"Dumping entry {handle:#x}\nMatch key:")
        for (name, kind, bits), value in zip(
            self.config["tables"][table]["keys"], entry["keys"], strict=True
        ):
            ends = value if isinstance(value, list) else [value]
            between = " &&& " if kind == "ternary" else " -> "
            shown = between.join(f"{v:0{2 * (-(-bits // 8))}x}" for v in ends)
            print(f"* {name:20}: {kind.upper():10}{shown}")
        if entry["priority"] is not None:
            print(f"Priority: {entry['priority']}")
        self.show_action(entry)

    def show_action(self, entry):
        # Data is shown in as few bytes as hold it.
        data = ", ".join(f"{v:0{2 * max(1, -(-v.bit_length() // 8))}x}" for v in entry["data"])
        print(f"Action entry: {entry['action']} - {data}")


def expect(enough):
    if not enough:
        raise RefusedError("Error: Wrong number of args")


def decimal(word, otherwise):
    try:
        return int(word)
    except ValueError as error:
        raise RefusedError(f"Error: {otherwise}") from error


def number(word, bits, what):
    try:
        if bits == 48 and ":" in word:
            value = int.from_bytes(bytes(int(b, 16) for b in word.split(":")), "big")
        else:
            value = int(word, 0)
    except ValueError as error:
        raise RefusedError(f"Invalid {what}: Error while parsing {word}") from error
    if value.bit_length() > 8 * -(-bits // 8):
        raise RefusedError(f"Invalid {what}: Error while parsing {word} - Parameter is too large")
    return max(0, value)


def key(word, _, kind, bits):
    if kind == "exact":
        return number(word, bits, "match key")
    ends = word.split("->" if kind == "range" else "&&&")
    if len(ends) != 2:
        raise RefusedError(f"Invalid match key: Invalid {kind} value {word}")
    first, second = (number(end, bits, "match key") for end in ends)
    return [first & second if kind == "ternary" else first, second]


def serve(stream):
    session = Session(stream)
    print("Obtaining JSON from switch...\nDone\nControl utility for runtime P4 table manipulation")
    before = []
    while True:
        print(PROMPT, end="")
        line = sys.stdin.readline()
        if not line:
            print()
            return
        words = before = line.split() or before
        try:
            if words and words[0] in session.known:
                session.known[words[0]](words[1:])
            elif words:
                print("*** Unknown syntax:", " ".join(words))
        except RefusedError as refused:
            print(refused)


port = int(options(sys.argv, "--thrift-port", "9090"))
host = options(sys.argv, "--thrift-ip", "localhost")
try:
    connection = socket.create_connection((host, port), timeout=60)
except OSError:
    print(f"Could not connect to thrift client on port {port}")
    print("Make sure the switch is running and that you have the right port")
    sys.exit(1)
with connection, connection.makefile("rw") as opened:
    serve(opened)
