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

// ErrIgnore is wrapped by errors about ignore rules that cannot be read.
var ErrIgnore = errors.New("ignore rules")

// Limits of [Ignore.Compile]: a tree is remote data.
const (
	maxIgnoreBytes = 8 << 20 // of all ignore files of a tree
	maxIgnoreLine  = 64 << 10
	maxIgnoreRules = 100_000 // patterns, without the defaults
)

// Ignore configures the ignore rules of a tree (specification, sources, "ignore"; reference A8).
// They match those of the reference implementation, which uses go-git's matcher, so that an
// artifact has the same content as in a cluster.
//
// # Patterns
//
// There is one pattern per line. Blank lines and lines that start with # are skipped; with a
// leading !, a pattern includes what it matches.
//
//   - A pattern without a /, except at its end, is matched against each name of a
//     path. Any other pattern is matched against the path below the directory of its
//     ignore file, or its first names, as many as the pattern has.
//   - A pattern that matches a directory matches everything in it.
//   - A trailing / restricts the pattern to directories. A symbolic link is not a directory.
//   - Names are matched as by [path.Match]: [^a] negates a set, [!a] does not.
//     ** between slashes matches any number of directories; only the first position at which
//     the rest of the pattern matches counts. Other patterns with a / and ** match nothing.
//   - Trailing spaces are ignored, unless a backslash precedes the last.
//   - A malformed pattern matches nothing.
//
// # Which pattern decides
//
// All patterns are in one list: Base, then Default, then the ignore files, those of a directory
// before those of the directories below it, then Extra. The last pattern in the list that matches
// the path of a file or directory decides about it. Each path is decided independently of its
// parents. So "*" and then "!/deploy" keep deploy with everything in it, and nothing else; and
// "vendor/" and then "!vendor/keep.yaml" keep that file, where git drops it. An ignored directory
// has no entry in an archive, even if a file below it has.
//
// The root of a tree is never ignored.
//
// # Files
//
// An ignore file is a regular file; links are not followed. It is read from every directory,
// including excluded ones, but not from a directory named .git or below it. Its patterns apply to
// entries below its directory.
type Ignore struct {
	Base    []string // patterns that always apply, lowest priority (VCS)
	Default []string // patterns that apply only if Top, File and Extra have no patterns
	File    string   // name of the ignore files, read from every directory; "": none is read
	Top     string   // text of the ignore file at the root, for callers that have no tree (a bucket)
	Extra   string   // text with the highest priority, rooted at the top (spec.ignore)
}

// DefaultIgnore returns the initial rules of Git and OCI sources: the patterns of reference A8 and
// ignore files named .sourceignore. Buckets have no default patterns.
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

// A Rule is one pattern and its position.
type Rule struct {
	Pattern string `json:"pattern,omitempty"` // as written
	Source  string `json:"source,omitempty"`  // its file, "spec.ignore" or "default"
	Line    int    `json:"line,omitempty"`    // 1-based; 0 for defaults
	Negate  bool   `json:"-"`
}

// Compile reads the ignore files of tree, in one walk, and compiles them with
// the other patterns. A nil tree has no ignore files.
//
// It fails with the cause of ctx if that ends, if the tree cannot be read, and if the patterns
// exceed a limit: 8 MiB in total, 65,535 bytes in a line and 100,000 patterns. Errors name file and
// line, and wrap [ErrIgnore].
func (i Ignore) Compile(ctx context.Context, tree fs.FS) (*Rules, error) {
	list, err := i.patterns(ctx, tree)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIgnore, err)
	}
	return newRules(list), nil
}

// patterns returns the patterns of i and of tree, lowest priority first.
func (i Ignore) patterns(ctx context.Context, tree fs.FS) ([]*pattern, error) {
	in := patternReader{bytesLeft: maxIgnoreBytes}
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

// extraName is the Source of rules of [Ignore.Extra].
const extraName = "spec.ignore"

// A patternReader collects patterns and enforces the limits.
type patternReader struct {
	list      []*pattern
	bytesLeft int // remaining bytes
}

// read adds the patterns of an ignore file.
func (r *patternReader) read(tree fs.FS, name string) error {
	f, err := tree.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, int64(r.bytesLeft)+1))
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return r.add(name, parentOf(name), string(text))
}

// add adds the patterns of a text, which apply below the directory domain. It splits lines as the
// reference implementation does: it trims nothing before it looks for #.
func (r *patternReader) add(source, domain, text string) error {
	if r.bytesLeft -= len(text); r.bytesLeft < 0 {
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

// A pattern is one line of ignore rules.
type pattern struct {
	Rule
	order     int    // among the patterns of the rules
	domain    string // the directory it applies to, "" for the root
	depth     int    // of the domain
	dirOnly   bool
	matchPath bool     // it has a /: it is matched against the path below the domain, else against names
	parts     []string // between its slashes
	literal   string   // the name must equal this, or end with it if suffix; "": any name
	suffix    bool
	match     gitignore.Pattern // for paths below the domain
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
	p.matchPath = strings.Contains(text, "/")
	p.parts = strings.FieldsFunc(text, func(c rune) bool { return c == '/' })
	name, star := strings.CutPrefix(strings.TrimPrefix(text, "**/"), "*")
	if !strings.ContainsAny(name, `/*?[\`) {
		p.literal, p.suffix = name, star
	}
	return p, nil
}

// escape matches a backslash and the character that it escapes.
var escape = regexp.MustCompile(`\\[^/\\]`)

// withoutEscapes returns an equivalent pattern without backslashes: go-git's matcher does not
// support escapes on Windows and would decide differently there.
func withoutEscapes(text string) (string, error) {
	if !strings.Contains(text, `\`) {
		return text, nil
	}
	unescaped := escape.ReplaceAllStringFunc(text, func(pair string) string {
		if char := pair[1:]; !strings.Contains("]^-", char) {
			return "[" + char + "]"
		}
		return pair[1:]
	})
	if strings.Contains(text, "[") || strings.Contains(text, "**") || strings.Contains(unescaped, `\`) {
		return "", errors.New(`on Windows a pattern with a backslash may hold no [, ** or \\, and none before a / or at the end: write [*] for \*`)
	}
	return unescaped, nil
}
