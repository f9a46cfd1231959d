package artifact

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"
)

// Limits of [Ignore.Compile]. A tree is remote data: what its ignore files may
// cost is bounded, and what matching may cost by maxIgnoreWork.
const (
	maxIgnoreFile  = 1 << 20 // bytes of one ignore file
	maxIgnoreTotal = 8 << 20 // bytes of all ignore files of a tree
	maxIgnoreDirs  = 1 << 20 // directories of a tree with ignore files
	maxIgnorePath  = 4096    // bytes of the path of a directory
	maxIgnoreRules = 100_000 // patterns, defaults included
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
	Pattern string // as written
	Source  string // the file it stands in, "spec.ignore" or "default"
	Line    int    // 1-based; 0 for defaults
	Negate  bool
}

// Compile reads the ignore files of tree, in one walk, and compiles them with
// the other patterns. A nil tree has no ignore files.
//
// It fails with the cause of ctx when that ends, when the tree cannot be read and
// when the patterns exceed a limit: 1 MiB for one ignore file or text, 8 MiB for
// all of a tree, 65,536 bytes for a line and 100,000 patterns. A tree that is
// searched for ignore files has at most 1,048,576 directories with paths of at
// most 4096 bytes. Errors name file and line, and wrap [ErrIgnore].
func (i Ignore) Compile(ctx context.Context, tree fs.FS) (*Rules, error) {
	r, err := i.compile(ctx, tree)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIgnore, err)
	}
	return r, nil
}

func (i Ignore) compile(ctx context.Context, tree fs.FS) (*Rules, error) {
	texts, err := i.texts(ctx, tree)
	if err != nil {
		return nil, err
	}
	var custom []pattern
	for _, t := range texts {
		if custom, err = t.parse(custom); err != nil {
			return nil, err
		}
	}
	fixed := i.Base
	if len(custom) == 0 {
		fixed = slices.Concat(i.Base, i.Default)
	}
	all, err := parseDefaults(fixed)
	if err != nil {
		return nil, err
	}
	return newRules(append(all, custom...)), nil
}

// texts returns the pattern texts of i and of tree, lowest priority first.
func (i Ignore) texts(ctx context.Context, tree fs.FS) ([]ignoreText, error) {
	s := ignoreScan{ctx: ctx, tree: tree, file: i.File}
	if err := s.add(ignoreText{source: i.topName(), body: i.Top}); err != nil {
		return nil, err
	}
	if tree != nil && i.File != "" {
		if err := s.dir("."); err != nil {
			return nil, err
		}
	}
	err := s.add(ignoreText{source: extraName, body: i.Extra})
	return s.texts, err
}

// topName is what rules of Top name as their source.
func (i Ignore) topName() string {
	if i.File == "" {
		return "ignore file"
	}
	return i.File
}

// An ignoreScan collects the ignore files of a tree.
type ignoreScan struct {
	ctx   context.Context
	tree  fs.FS
	file  string
	texts []ignoreText
	bytes int
	dirs  int
}

// dir reads the ignore file of the directory name, then those below it.
func (s *ignoreScan) dir(name string) error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	if len(name) > maxIgnorePath {
		return fmt.Errorf("%s…: a path of more than %d bytes: flatten the tree", name[:64], maxIgnorePath)
	}
	if s.dirs++; s.dirs > maxIgnoreDirs {
		return fmt.Errorf("%s: more than %d directories up to here: narrow the tree", name, maxIgnoreDirs)
	}
	entries, err := fs.ReadDir(s.tree, name)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == s.file && e.Type().IsRegular() }) {
		if err := s.read(name); err != nil {
			return err
		}
	}
	for _, e := range entries {
		if !e.IsDir() || e.Name() == ".git" {
			continue
		}
		if err := s.dir(path.Join(name, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// read reads the ignore file of the directory dir.
func (s *ignoreScan) read(dir string) error {
	name := path.Join(dir, s.file)
	f, err := s.tree.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	body, err := io.ReadAll(io.LimitReader(f, maxIgnoreFile+1))
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	domain := ""
	if dir != "." {
		domain = dir + "/"
	}
	return s.add(ignoreText{source: name, domain: domain, body: string(body)})
}

// add appends t and charges it to the limits.
func (s *ignoreScan) add(t ignoreText) error {
	if len(t.body) > maxIgnoreFile {
		return fmt.Errorf("%s: more than %d bytes: shorten it", t.source, maxIgnoreFile)
	}
	if s.bytes += len(t.body); s.bytes > maxIgnoreTotal {
		return fmt.Errorf("%s: the ignore files up to here hold more than %d bytes: shorten them", t.source, maxIgnoreTotal)
	}
	if t.body != "" {
		s.texts = append(s.texts, t)
	}
	return nil
}

// extraName is what rules of [Ignore.Extra] name as their source.
const extraName = "spec.ignore"

// An ignoreText is the text of an ignore file and where it comes from.
type ignoreText struct {
	source string
	domain string // the directory its patterns apply below: "" or ending in /
	body   string
}

// parse appends the patterns of t to list. Lines are those of the reference:
// nothing is trimmed before # is looked for.
func (t ignoreText) parse(list []pattern) ([]pattern, error) {
	lines := bufio.NewScanner(strings.NewReader(t.body))
	line := 0
	for lines.Scan() {
		line++
		text := lines.Text()
		if strings.HasPrefix(text, "#") || strings.TrimSpace(text) == "" {
			continue
		}
		if len(list) == maxIgnoreRules {
			return nil, fmt.Errorf("%s:%d: more than %d patterns: use fewer", t.source, line, maxIgnoreRules)
		}
		p, err := newPattern(Rule{Pattern: text, Source: t.source, Line: line}, t.domain)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", t.source, line, err)
		}
		list = append(list, p)
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return nil, fmt.Errorf("%s:%d: a line of more than %d bytes: shorten it", t.source, line+1, bufio.MaxScanTokenSize)
	}
	return list, lines.Err()
}

// parseDefaults parses patterns that are given one by one.
func parseDefaults(texts []string) ([]pattern, error) {
	list := make([]pattern, len(texts))
	for i, text := range texts {
		p, err := newPattern(Rule{Pattern: text, Source: "default"}, "")
		if err != nil {
			return nil, fmt.Errorf("default pattern %q: %w", text, err)
		}
		list[i] = p
	}
	return list, nil
}

// newPattern parses the pattern of a line.
func newPattern(rule Rule, domain string) (p pattern, err error) {
	text := rule.Pattern
	if runtime.GOOS == "windows" {
		if text, err = withoutEscapes(text); err != nil {
			return p, err
		}
	}
	p = pattern{Rule: rule, domain: domain, depth: strings.Count(domain, "/"), match: gitignore.ParsePattern(text, nil)}
	p.glob, p.Negate = strings.CutPrefix(text, "!")
	if !strings.HasSuffix(p.glob, `\ `) {
		p.glob = strings.TrimRight(p.glob, " ")
	}
	p.glob, p.dirOnly = strings.CutSuffix(p.glob, "/")
	p.whole = strings.Contains(p.glob, "/")
	name := strings.TrimPrefix(p.glob, "**/") // which says no more than that the name may be anywhere
	if rest, star := strings.CutPrefix(name, "*"); !strings.ContainsAny(rest, `/*?[\`) {
		p.plain, p.suffix = rest, star
	}
	return p, nil
}

// withoutEscapes writes a pattern without backslashes: the matcher of go-git
// knows no escapes on Windows, and would decide otherwise there.
func withoutEscapes(text string) (string, error) {
	if !strings.Contains(text, `\`) {
		return text, nil
	}
	unclear := errors.New(`on Windows a pattern with a backslash may hold no [, ** or \\, and none before a / or at the end: write [*] for \*`)
	if strings.Contains(text, "**") { // which an escape must not become
		return "", unclear
	}
	text, negated := strings.CutPrefix(text, "!")
	if !strings.HasSuffix(text, `\ `) {
		text = strings.TrimRight(text, " ")
	}
	var b strings.Builder
	if negated {
		b.WriteByte('!')
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '[', c == '\\' && (i+1 == len(text) || strings.IndexByte(`\/`, text[i+1]) >= 0):
			return "", unclear
		case c != '\\':
			b.WriteByte(c)
		default:
			if i++; strings.IndexByte("]^-", text[i]) >= 0 || text[i] >= 0x80 {
				b.WriteByte(text[i])
			} else {
				b.WriteString("[" + text[i:i+1] + "]")
			}
		}
	}
	return b.String(), nil
}
