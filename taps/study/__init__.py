"""What a study is: the schema of its config, the checks across keys, the names it contains, what it will cost."""
