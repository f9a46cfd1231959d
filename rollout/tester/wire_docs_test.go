package tester_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
)

// TestWireDocs looks for an exchange of testdata/exchanges for each row of the table
// "Webhook target" of docs/tester.md.
func TestWireDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/tester.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| Path | Method | When | Status | Body |\n|---|---|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var exchanges []testenv.Exchange
	files, _ := filepath.Glob("../../testdata/exchanges/*.txt")
	for _, file := range files {
		more, err := testenv.Exchanges(file)
		if err != nil {
			t.Fatal(err)
		}
		exchanges = append(exchanges, more...)
	}
	rows := 0
	for line := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) != 5 {
			t.Fatalf("row %q", line)
		}
		rows++
		if !shown(exchanges, strings.Trim(cells[0], "`"), cells[1], cells[3], cells[4]) {
			t.Errorf("no exchange for %s", line)
		}
	}
	if rows < 20 {
		t.Errorf("%d rows", rows)
	}
}

var placeholder = regexp.MustCompile(`[A-Z]{4,}`)

// shown reports whether there is an exchange like a row. What its body has in
// capitals stands for something.
func shown(exchanges []testenv.Exchange, path, method, status, body string) bool {
	want := regexp.MustCompile(`(?s)\A\z`)
	if _, rest, quoted := strings.Cut(body, "`"); quoted {
		exact, _, _ := strings.Cut(rest, "`")
		want = regexp.MustCompile(`(?s)\A` + placeholder.ReplaceAllString(regexp.QuoteMeta(exact), ".+"))
	} else if body == "its output" {
		want = regexp.MustCompile(`.`)
	}
	for _, x := range exchanges {
		answer := x.Answer
		if x.Pattern != nil {
			answer = strings.TrimSuffix(strings.TrimPrefix(x.Pattern.String(), `\A(?:`), `)\z`)
		}
		if x.Target == path && (method == "any" || x.Method == method) && status == strconv.Itoa(x.Status) && want.MatchString(answer) {
			return true
		}
	}
	return false
}
