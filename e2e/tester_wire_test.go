package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
)

// The rows of the test runner's table of exchanges that are said to hold for the
// load tester of Flagger do.
func TestTesterWireIsTheReferences(t *testing.T) {
	if !inside(t) {
		return // the load tester listens everywhere
	}
	files, err := filepath.Glob("../testdata/exchanges/*.txt")
	check(t, err)
	rows := 0
	for _, file := range files {
		exchanges, err := testenv.Exchanges(file)
		check(t, err)
		theirs := strings.TrimPrefix(serveLoadTester(t), "http://")
		for _, x := range exchanges {
			if !x.Reference {
				continue
			}
			rows++
			if err := x.Do(theirs); err != nil {
				t.Errorf("%s: %s: %v", x.Place, x.Name, err)
			}
		}
	}
	if rows < 30 {
		t.Errorf("%d rows", rows)
	}
}
