package artifact

import (
	"bufio"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"
)

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
