# SPDX-License-Identifier: Apache-2.0
"""HTML read back: its tags, its text, and what is not closed."""

from html.parser import HTMLParser

VOID = {"meta", "img", "br", "link", "input", "hr", "col"}


class Page(HTMLParser):
    """Tags with their attributes, text, and mistakes of nesting."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self.wrong, self._open = [], "", [], []
        self.feed(text)
        self.close()
        self.wrong += self._open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self._open or self._open.pop() != tag:
            self.wrong.append(f"/{tag}")

    def handle_data(self, data):
        self.text += data

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]
