"""Networks of many sizes: trained side by side, and which of them are worth their cost."""
