"""The plan language: lexer, parser, syntax tree, segmenter and interpreter."""
