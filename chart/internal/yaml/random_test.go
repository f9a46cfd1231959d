package yaml

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
)

// words are what random documents consist of.
var words = []string{
	"a", "b", "cd", "'e'", "\"f\"", "g h", "\"\\u00e9\"", "''", "'i''j'", "\"k\\\n l\"", "'m\n n'", "é", "1", "-1", "x#y", "u:v",
	": ", ":", ": ", ": ", "- ", "- ", "-", "? ", "?", "\n", "\n", "\n", "\n  ", "\n  ", "\n    ", "\n ", " ", "  ", "\t", "\n\n",
	"[", "]", "{", "}", ",", ", ", "|\n", ">\n", "|-\n  ", ">+\n ", "|2\n", "&p ", "&q ", "*p", "*q ", "!t ", "!!u ", "! ", "# w", " # w\n",
	"\n---\n", "\n--- ", "\n...\n", "\r\n", "\u0085", "\u2028", "<<", "%", "@", "\\", "\"", "'",
}

// TestRandomDocuments compares random documents with the other implementation.
func TestRandomDocuments(t *testing.T) {
	n, seed := 20000, uint64(1)
	if s := os.Getenv("YAMLN"); s != "" {
		n, _ = strconv.Atoi(s)
		seed = rand.Uint64()
	}
	r := rand.New(rand.NewPCG(seed, 2))
	for range n {
		var b strings.Builder
		for range 1 + r.IntN(14) {
			b.WriteString(words[r.IntN(len(words))])
		}
		compare(t, []byte(b.String()))
	}
}
