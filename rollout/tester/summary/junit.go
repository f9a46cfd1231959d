package summary

import (
	"bytes"
	"strings"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// junit reads reports in JUnit's XML. It follows the structure of a document and
// keeps no part of it but the tag that it is in. A document starts with the
// first tag of a line; one whose root is no test suite is not looked at.
type junit struct {
	total tally
	found bool

	state  state
	quote  byte   // that ends what is quoted in a tag or declaration
	run    int    // bytes of the end of a comment or section that were seen
	nested int    // brackets of a declaration
	prolog int    // bytes since a line that began with <, before the root
	mid    bool   // in a line that began with something else
	tag    []byte // first maxLine bytes, without < and >
	last   byte   // of a tag, whatever its length

	depth int // of open elements; 0 outside of a report
	suite string
	test  test
}

// A test is an open testcase.
type test struct {
	depth           int // 0 for none
	name            string
	failed, skipped bool
}

type state int

const (
	inText state = iota
	inOpen       // after <
	inBang       // after <!
	inTag
	inComment
	inSection // CDATA
	inInstruction
	inDeclaration
)

// maxProlog is what may stand before the root element of a report, bytes.
const maxProlog = 64 << 10

func (j *junit) write(p []byte) {
	for len(p) > 0 {
		if n := j.skip(p); n > 0 {
			p = p[n:]
			continue
		}
		j.next(p[0])
		p = p[1:]
	}
}

// skip returns how many bytes at the start of p say nothing in the state that j
// is in.
func (j *junit) skip(p []byte) int {
	var stop byte
	switch {
	case j.state == inText && j.depth > 0:
		stop = '<'
	case j.state == inText && j.mid:
		stop = '\n'
	case j.state == inTag && j.quote != 0 && len(j.tag) == maxLine:
		stop = j.quote
	default:
		return 0
	}
	if i := bytes.IndexByte(p, stop); i >= 0 {
		return i
	}
	return len(p)
}

func (j *junit) next(c byte) {
	if j.depth == 0 && j.state != inText {
		if j.prolog++; j.prolog > maxProlog {
			j.abandon()
		}
	}
	switch j.state {
	case inText:
		j.text(c)
	case inOpen:
		j.open(c)
	case inBang:
		j.bang(c)
	case inTag:
		j.inTag(c)
	case inComment:
		j.until('-', 2, c)
	case inSection:
		j.until(']', 2, c)
	case inInstruction:
		j.until('?', 1, c)
	case inDeclaration:
		j.declaration(c)
	}
}

// abandon takes the rest of the line for something else than a report.
func (j *junit) abandon() { j.state, j.mid, j.quote, j.prolog = inText, true, 0, 0 }

func (j *junit) text(c byte) {
	switch {
	case c == '<' && (j.depth > 0 || !j.mid):
		j.state = inOpen
	case c == '\n':
		j.mid = false
	case c != ' ' && c != '\t' && c != '\r' && c != 0xEF && c != 0xBB && c != 0xBF: // a byte order mark
		j.mid = true
	}
}

func (j *junit) open(c byte) {
	j.tag, j.quote, j.run, j.last = j.tag[:0], 0, 0, 0
	switch {
	case c == '!':
		j.state = inBang
	case c == '?':
		j.state = inInstruction
	case c == '/' || c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z':
		j.state = inTag
		j.inTag(c)
	case j.depth > 0:
		j.state = inText // what should have been &lt;
	default:
		j.abandon()
	}
}

func (j *junit) bang(c byte) {
	j.tag = append(j.tag, c)
	switch got := string(j.tag); {
	case got == "--":
		j.state = inComment
	case got == "[CDATA[":
		j.state = inSection
	case !strings.HasPrefix("--", got) && !strings.HasPrefix("[CDATA[", got):
		j.state, j.nested = inDeclaration, 0
		for _, c := range j.tag {
			j.declaration(c)
		}
	}
}

// until waits for count bytes c or more, and >.
func (j *junit) until(end byte, count int, c byte) {
	switch {
	case c == '>' && j.run >= count:
		j.state = inText
	case c == end:
		j.run++
	default:
		j.run = 0
	}
}

// declaration waits for the end of one such as DOCTYPE. Nothing that it declares counts.
func (j *junit) declaration(c byte) {
	switch {
	case j.quote != 0:
		if c == j.quote {
			j.quote = 0
		}
	case c == '"' || c == '\'':
		j.quote = c
	case c == '[':
		j.nested++
	case c == ']':
		j.nested--
	case c == '>' && j.nested <= 0:
		j.state = inText
	}
}

func (j *junit) inTag(c byte) {
	switch {
	case j.quote != 0:
		if c == j.quote {
			j.quote = 0
		}
	case c == '>':
		j.state = inText
		j.element()
		return
	case c == '"' || c == '\'':
		j.quote = c
	}
	j.last = c
	if len(j.tag) < maxLine {
		j.tag = append(j.tag, c)
	}
}

// element looks at the tag that just ended.
func (j *junit) element() {
	if j.tag[0] == '/' {
		j.end()
		return
	}
	name, attributes := element(j.tag)
	if j.depth == 0 {
		if name != "testsuites" && name != "testsuite" {
			j.abandon()
			return
		}
		j.found, j.suite, j.test, j.prolog = true, "", test{}, 0
	}
	j.depth++
	j.begin(name, attributes)
	if j.last == '/' {
		j.end()
	}
}

func (j *junit) begin(name string, attributes []byte) {
	switch name {
	case "testsuite":
		j.suite = attribute(attributes, "name")
	case "testcase":
		j.total.seen++
		j.test = test{depth: j.depth, name: attribute(attributes, "name")}
		if class := attribute(attributes, "classname"); class != "" && class != j.test.name {
			j.test.name = class + ": " + j.test.name
		}
	case "failure", "error":
		j.fail()
	case "skipped":
		if j.test.depth > 0 && j.depth == j.test.depth+1 {
			j.test.skipped = true
		}
	}
}

// fail notes that the open test failed, or what is around the tests of a suite.
func (j *junit) fail() {
	switch {
	case j.test.depth == 0:
		j.total.seen++
		j.total.failed++
		j.total.failures = j.total.failures.add(j.suite)
	case j.depth == j.test.depth+1:
		j.test.failed = true
	}
}

// end ends the innermost element, whatever the tag is called.
func (j *junit) end() {
	if j.depth == 0 {
		j.abandon()
		return
	}
	if j.test.depth == j.depth {
		switch {
		case j.test.skipped: // node also tells how what is to do fails
			j.total.skipped++
		case j.test.failed:
			j.total.failed++
			j.total.failures = j.total.failures.add(j.test.name)
		}
		j.test = test{}
	}
	if j.depth--; j.depth == 0 {
		j.mid = true
	}
}

func (j junit) summary() *api.Summary {
	if !j.found {
		return nil
	}
	if j.depth > 0 {
		if j.test.depth == 0 {
			j.total.seen++
		}
		j.total.failed++
		j.total.failures = j.total.failures.add("the report ended early")
	}
	return j.total.summary("junit")
}
