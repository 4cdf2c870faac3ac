"""The packet path around a core, and a card of it between two network interfaces."""
