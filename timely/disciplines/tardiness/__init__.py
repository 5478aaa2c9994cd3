"""The discipline `weighted-tardiness`: deadlines by apparent tardiness cost; `timely` is built on it."""
