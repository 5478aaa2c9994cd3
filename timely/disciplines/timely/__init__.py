"""The discipline `expected-utility`: one index for deadlines, lengths, applications, levels and drafts."""
