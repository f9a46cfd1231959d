package artifact

import (
	"errors"
	"io/fs"
)

// Ignore says which ignore rules apply to a tree (reference A8).
type Ignore struct {
	Base    []string // patterns that always apply, lowest priority (VCS)
	Default []string // patterns that apply only while nobody gives any other
	File    string   // name of the ignore files read from every directory; "" reads none
	Extra   string   // patterns with the highest priority, rooted at the top (spec.ignore)
}

// A Rule is one pattern and where it stands.
type Rule struct {
	Pattern string // as written
	Source  string // the file it stands in, "spec.ignore" or "default"
	Line    int    // 1-based; 0 for defaults
	Negate  bool
}

// Rules is a compiled set of ignore rules.
type Rules struct{}

// Compile reads the ignore files of tree and compiles them with the others.
func (i Ignore) Compile(tree fs.FS) (*Rules, error) { return nil, errors.ErrUnsupported }

// Match reports the rule that decides about name and whether it is ignored.
func (r *Rules) Match(name string, dir bool) (rule Rule, ignored bool) { return Rule{}, false }

// View returns tree without what the rules ignore.
func (r *Rules) View(tree fs.FS) fs.FS { return tree }
