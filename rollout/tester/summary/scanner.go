// Package summary finds in the output of a command what well-known test tools
// say at their end: how many tests ran and which failed, how fast a load was.
//
// Recognised are, wherever they stand among other output:
//
//   - TAP 12 to 14 (bats, node, prove --verbose): tests that a plan promised
//     and that did not run have failed. A subtest is part of the test that it
//     belongs to. What is to do counts as skipped.
//   - JUnit XML, of one or several suites. Entities of a document are not
//     expanded, nothing is fetched. A report that ends early has failed.
//   - the text that k6 prints at the end: each check and each threshold counts
//     as a test.
//   - hey and wrk: answers with a status from 400 on count as errors.
//
// When there are several of one kind their numbers are added up, and the
// slowest latencies count. Of several kinds JUnit goes before TAP, then k6, hey
// and wrk.
//
// A Scanner needs time in proportion to what is written, and memory of a few
// KiB whatever is written. Only the first 4 KiB of a line, and of a tag, count.
// Names are at most 200 bytes of valid UTF-8 without control characters. They
// may hold secrets that the tool wrote: masking those is for who knows them.
package summary

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

const (
	maxLine  = 4 << 10 // bytes of a line or a tag that count
	maxName  = 200     // bytes of the name of a failure
	maxNames = 20
	maxCount = 1e15 // of what a tool may say; more is no number
)

// A Scanner looks for summaries in what is written to it. It is not safe for
// concurrent use.
type Scanner struct {
	line  []byte // that has no end yet, its first maxLine bytes
	junit junit
	tap   tap
	k6    k6
	hey   hey
	wrk   wrk
}

// New returns a Scanner that has seen nothing.
func New() *Scanner { return &Scanner{} }

// Write looks at the next part of the output. It never fails.
func (s *Scanner) Write(p []byte) (int, error) {
	s.junit.write(p)
	for rest := p; len(rest) > 0; {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			s.keep(rest)
			break
		}
		if len(s.line) == 0 {
			s.look(rest[:min(i, maxLine)])
		} else {
			s.keep(rest[:i])
			s.look(s.line)
			s.line = s.line[:0]
		}
		rest = rest[i+1:]
	}
	return len(p), nil
}

func (s *Scanner) keep(part []byte) {
	s.line = append(s.line, part[:min(len(part), maxLine-len(s.line))]...)
}

func (s *Scanner) look(line []byte) {
	line = bytes.TrimRight(line, " \t\r")
	if len(line) == 0 {
		return
	}
	s.tap.look(line)
	s.k6.look(line)
	s.hey.look(line)
	s.wrk.look(line)
}

// Summary returns what was found, nil when nothing was. More may be written
// afterwards.
func (s *Scanner) Summary() *api.Summary {
	end := *s // a line without end counts, and stays one that may go on
	if len(end.line) > 0 {
		end.look(bytes.Clone(end.line))
	}
	for _, found := range []*api.Summary{end.junit.summary(), end.tap.summary(), end.k6.summary(), end.hey.summary(), end.wrk.summary()} {
		if found != nil {
			return found
		}
	}
	return nil
}

// names are those of what failed. Copies of it may be added to independently.
type names []string

func (n names) add(name string) names {
	if len(n) >= maxNames {
		return n
	}
	return append(n[:len(n):len(n)], clean(name))
}

func (n names) join(more names) names {
	for _, name := range more[:min(len(more), maxNames-len(n))] {
		n = n.add(name)
	}
	return n
}

// clean returns what may be shown of a name that a tool wrote.
func clean(name string) string {
	name = strings.TrimSpace(redact.String(strings.ToValidUTF8(name, "\uFFFD")))
	if len(name) <= maxName {
		return name
	}
	end := maxName - len("…")
	for end > 0 && !utf8.RuneStart(name[end]) {
		end--
	}
	return name[:end] + "…"
}
