package yaml

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	goyaml "go.yaml.in/yaml/v3"
)

// words are what random documents consist of.
var words = []string{
	"a", "b", "cd", "'e'", "\"f\"", "g h", "\"\\u00e9\"", "''", "'i''j'", "\"k\\\n l\"", "'m\n n'", "é", "1", "-1", "x#y", "u:v",
	": ", ":", ": ", ": ", "- ", "- ", "-", "? ", "?", "\n", "\n", "\n", "\n  ", "\n  ", "\n    ", "\n ", " ", "  ", "\t", "\n\n",
	"[", "]", "{", "}", ",", ", ", "|\n", ">\n", "|-\n  ", ">+\n ", "|2\n", "&p ", "&q ", "*p", "*q ", "!t ", "!!u ", "! ", "# w", " # w\n",
	"\n---\n", "\n--- ", "\n...\n", "\r\n", "\u0085", "\u2028", "<<", "%", "@", "\\", "\"", "'",
}

// TestEmitted compares what the other implementation writes.
func TestEmitted(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	for range 500 {
		var b strings.Builder
		e := goyaml.NewEncoder(&b)
		e.SetIndent(1 + r.IntN(5))
		if err := e.Encode(randomNode(r, 4)); err != nil {
			t.Fatal(err)
		}
		doc := b.String()
		if _, err := trace(strings.NewReader(doc), Limits{}); err != nil {
			if _, ref := reference([]byte(doc)); ref == nil {
				t.Fatalf("%s: %v", doc, err)
			}
		}
		compare(t, []byte(doc))
	}
}

// randomNode returns a tree with all styles.
func randomNode(r *rand.Rand, depth int) *goyaml.Node {
	n := &goyaml.Node{Kind: goyaml.ScalarNode}
	if r.IntN(4) > 0 && depth > 0 {
		n.Kind = []goyaml.Kind{goyaml.MappingNode, goyaml.SequenceNode}[r.IntN(2)]
		n.Style = []goyaml.Style{0, 0, goyaml.FlowStyle}[r.IntN(3)]
		for range r.IntN(5) {
			if n.Kind == goyaml.MappingNode {
				n.Content = append(n.Content, randomNode(r, 0))
			}
			n.Content = append(n.Content, randomNode(r, depth-1))
		}
	} else {
		for range r.IntN(12) {
			n.Value += []string{"a", "word ", "text-of-some-length", " ", "\n", "\n\n", "\t", ": ", " #", "é", "'", "\"", "\\", "- ", "{", "1", "\u2028", "\x01", "lorem ipsum dolor sit amet "}[r.IntN(19)]
		}
		n.Tag = "!!str"
		n.Style = []goyaml.Style{0, goyaml.SingleQuotedStyle, goyaml.DoubleQuotedStyle, goyaml.LiteralStyle, goyaml.FoldedStyle}[r.IntN(5)]
	}
	if r.IntN(20) == 0 {
		n.Anchor = "x" + strconv.Itoa(r.IntN(5))
	}
	if r.IntN(20) == 0 {
		n.HeadComment = "comment"
	}
	if r.IntN(20) == 0 {
		n.LineComment = "comment"
	}
	return n
}

// TestRandomDocuments compares random documents with the other implementation.
func TestRandomDocuments(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 10000 {
		var b strings.Builder
		for range 1 + r.IntN(20) {
			b.WriteString(words[r.IntN(len(words))])
		}
		compare(t, []byte(b.String()))
	}
}
