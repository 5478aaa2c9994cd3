"""The default discipline `timely`: one index for deadlines, lengths, applications, levels and drafts."""
