package artifact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"
)

// ErrIgnore is what ignore rules fail with that cannot be read.
var ErrIgnore = errors.New("ignore rules")

// Limits of [Ignore.Compile]: a tree is remote data.
const (
	maxIgnoreBytes = 8 << 20 // of all ignore files of a tree
	maxIgnoreLine  = 64 << 10
	maxIgnoreRules = 100_000 // patterns, defaults excepted
)

// Ignore says which ignore rules apply to a tree (specification, sources,
// "ignore"; reference A8). They are those of the reference implementation, whose
// matcher is go-git's, so that an artifact holds what a cluster's would.
//
// # Patterns
//
// There is one pattern a line. Lines that are blank or start with # hold none;
// a leading ! makes a pattern include what it matches.
//
//   - Without a / but at its end a pattern is matched against each name of a
//     path; with one, against the path below the directory of its ignore file, or
//     as many names of it as the pattern has.
//   - What matches a directory matches all that is in it.
//   - A trailing / restricts the pattern to directories. A symbolic link is none.
//   - Names are matched as by [path.Match]: [^a] negates a set, [!a] does not.
//     ** between slashes matches any number of directories; the first place where
//     what follows it matches counts. Other patterns with a / and ** match nothing.
//   - Spaces at the end count for nothing, unless a backslash stands before the last.
//   - A pattern that is not well formed matches nothing.
//
// # Which pattern decides
//
// Every pattern has its place in one list: Base, then Default, then the ignore
// files, those of a directory before those of the directories below it, then
// Extra. Each file and each directory is judged by itself: the last pattern of
// the list that matches its path decides about it. So "*" and then "!/deploy"
// keep deploy with all that is in it, and nothing else; and "vendor/" and then
// "!vendor/keep.yaml" keep that file, where git drops it. A directory that is
// ignored has no entry in an archive, whether or not something below it has.
//
// The root of a tree is never ignored.
//
// # Files
//
// An ignore file is a regular file; links are not followed. It is read from
// every directory, excluded ones too, but not from a directory named .git or
// below it. Its patterns apply to what is below its directory.
type Ignore struct {
	Base    []string // patterns that always apply, lowest priority (VCS)
	Default []string // patterns that apply only while neither Top, nor File, nor Extra holds any
	File    string   // name of the ignore files read from every directory; "" reads none
	Top     string   // text of an ignore file at the top that the caller has read, for who has no tree (a bucket)
	Extra   string   // text with the highest priority, rooted at the top (spec.ignore)
}

// DefaultIgnore returns the rules that Git and OCI sources start from: the
// patterns of reference A8 and ignore files named .sourceignore. Buckets have
// no default patterns.
func DefaultIgnore() Ignore {
	return Ignore{
		Base: []string{".git/", ".gitignore", ".gitmodules", ".gitattributes"},
		Default: []string{
			"*.jpg", "*.jpeg", "*.gif", "*.png", "*.wmv", "*.flv", "*.tar.gz", "*.zip",
			".github/", ".circleci/", ".travis.yml", ".gitlab-ci.yml", "appveyor.yml", ".drone.yml",
			"cloudbuild.yaml", "codeship-services.yml", "codeship-steps.yml",
			"**/.goreleaser.yml", "**/.sops.yaml", "**/.flux.yaml",
		},
		File: ".sourceignore",
	}
}

// A Rule is one pattern and where it stands.
type Rule struct {
	Pattern string `json:"pattern,omitempty"` // as written
	Source  string `json:"source,omitempty"`  // the file it stands in, "spec.ignore" or "default"
	Line    int    `json:"line,omitempty"`    // 1-based; 0 for defaults
	Negate  bool   `json:"-"`
}

// Compile reads the ignore files of tree, in one walk, and compiles them with
// the other patterns. A nil tree has no ignore files.
//
// It fails with the cause of ctx when that ends, when the tree cannot be read,
// and when the patterns exceed a limit: 8 MiB in all, less than 65,536 bytes for a line
// and 100,000 patterns. Errors name file and line, and wrap [ErrIgnore].
func (i Ignore) Compile(ctx context.Context, tree fs.FS) (*Rules, error) {
	list, err := i.patterns(ctx, tree)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIgnore, err)
	}
	return newRules(list), nil
}

// patterns returns the patterns of i and of tree, lowest priority first.
func (i Ignore) patterns(ctx context.Context, tree fs.FS) ([]*pattern, error) {
	in := patternReader{left: maxIgnoreBytes}
	if err := in.add(cmp.Or(i.File, "ignore file"), "", i.Top); err != nil {
		return nil, err
	}
	if tree != nil && i.File != "" {
		err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
			switch {
			case err != nil || ctx.Err() != nil:
				return cmp.Or(err, context.Cause(ctx))
			case d.IsDir() && d.Name() == ".git":
				return fs.SkipDir
			case d.Name() == i.File && d.Type().IsRegular():
				return in.read(tree, name)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		slices.SortStableFunc(in.list, func(a, b *pattern) int { return cmp.Compare(a.depth, b.depth) })
	}
	if err := in.add(extraName, "", i.Extra); err != nil {
		return nil, err
	}
	fixed := i.Base
	if len(in.list) == 0 {
		fixed = slices.Concat(i.Base, i.Default)
	}
	var list []*pattern
	for _, text := range fixed {
		p, err := newPattern(Rule{Pattern: text, Source: "default"}, "")
		if err != nil {
			return nil, fmt.Errorf("default pattern %q: %w", text, err)
		}
		list = append(list, p)
	}
	return append(list, in.list...), nil
}

// extraName is what rules of [Ignore.Extra] name as their source.
const extraName = "spec.ignore"

// A patternReader collects patterns within the limits.
type patternReader struct {
	list []*pattern
	left int // bytes that further texts may have
}

// read adds the patterns of an ignore file.
func (r *patternReader) read(tree fs.FS, name string) error {
	f, err := tree.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, int64(r.left)+1))
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return r.add(name, parentOf(name), string(text))
}

// add adds the patterns of a text, which apply below the directory domain. Lines
// are those of the reference: nothing is trimmed before # is looked for.
func (r *patternReader) add(source, domain, text string) error {
	if r.left -= len(text); r.left < 0 {
		return fmt.Errorf("%s: the ignore files up to here hold more than %d bytes: shorten them", source, maxIgnoreBytes)
	}
	n := 0
	for line := range strings.SplitSeq(text, "\n") {
		n++
		if len(line) >= maxIgnoreLine {
			return fmt.Errorf("%s:%d: a line of more than %d bytes: shorten it", source, n, maxIgnoreLine)
		}
		line = strings.TrimSuffix(line, "\r")
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			continue
		}
		if len(r.list) == maxIgnoreRules {
			return fmt.Errorf("%s:%d: more than %d patterns: use fewer", source, n, maxIgnoreRules)
		}
		p, err := newPattern(Rule{Pattern: line, Source: source, Line: n}, domain)
		if err != nil {
			return fmt.Errorf("%s:%d: %w", source, n, err)
		}
		r.list = append(r.list, p)
	}
	return nil
}

// A pattern is one line.
type pattern struct {
	Rule
	order   int    // among the patterns of the rules
	domain  string // the directory it applies below, "" for the root
	depth   int    // of the domain
	dirOnly bool
	whole   bool     // it has a /, so it is matched against the path below the domain, else against names
	parts   []string // between its slashes
	plain   string   // the name must be this, or end so with suffix; "" says nothing
	suffix  bool
	match   gitignore.Pattern // for paths below the domain
}

func newPattern(rule Rule, domain string) (*pattern, error) {
	text := rule.Pattern
	if !strings.HasSuffix(text, `\ `) {
		text = strings.TrimRight(text, " ")
	}
	if runtime.GOOS == "windows" {
		var err error
		if text, err = withoutEscapes(text); err != nil {
			return nil, err
		}
	}
	p := &pattern{Rule: rule, domain: domain, match: gitignore.ParsePattern(text, nil)}
	if domain != "" {
		p.depth = 1 + strings.Count(domain, "/")
	}
	text, p.Negate = strings.CutPrefix(text, "!")
	text, p.dirOnly = strings.CutSuffix(text, "/")
	p.whole = strings.Contains(text, "/")
	p.parts = strings.FieldsFunc(text, func(c rune) bool { return c == '/' })
	name, star := strings.CutPrefix(strings.TrimPrefix(text, "**/"), "*")
	if !strings.ContainsAny(name, `/*?[\`) {
		p.plain, p.suffix = name, star
	}
	return p, nil
}

// escape is a backslash and the character that it takes the meaning from.
var escape = regexp.MustCompile(`\\[^/\\]`)

// withoutEscapes writes a pattern without backslashes: the matcher of go-git
// knows no escapes on Windows, and would decide otherwise there.
func withoutEscapes(text string) (string, error) {
	if !strings.Contains(text, `\`) {
		return text, nil
	}
	plain := escape.ReplaceAllStringFunc(text, func(pair string) string {
		if char := pair[1:]; !strings.Contains("]^-", char) {
			return "[" + char + "]"
		}
		return pair[1:]
	})
	if strings.Contains(text, "[") || strings.Contains(text, "**") || strings.Contains(plain, `\`) {
		return "", errors.New(`on Windows a pattern with a backslash may hold no [, ** or \\, and none before a / or at the end: write [*] for \*`)
	}
	return plain, nil
}
