# SPDX-License-Identifier: Apache-2.0
"""Markdown read back as GitHub shows it, by an independent reader."""

from html.parser import HTMLParser

from markdown_it import MarkdownIt


class _Texts(HTMLParser):
    """The text of each list item, heading, paragraph and cell."""

    BLOCKS = ("li", "p", "td", "th", "h1", "h2", "h3", "pre")

    def __init__(self):
        super().__init__()
        self.texts, self.tags = [""], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag in self.BLOCKS:
            self.texts.append("")

    def handle_data(self, data):
        self.texts[-1] += data


def _page(markdown):
    texts = _Texts()
    texts.feed(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(markdown))
    return texts


def markdown_texts(markdown):
    """The text of each block, in order, as a reader sees it."""
    return [text.strip() for text in _page(markdown).texts if text.strip()]


def markdown_tags(markdown):
    """The names of the tags of the page, in order."""
    return _page(markdown).tags
