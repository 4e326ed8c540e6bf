"""Commands that compare and explain: diff, explain, graph, bisect."""
