package summary_test

import (
	"fmt"
	"io"

	"github.com/headgate-io/headgate/rollout/tester/summary"
)

func Example() {
	s := summary.New()
	io.WriteString(s, "starting\n1..3\nok 1 - home page\nnot ok 2 - log in\nok 3 - log out # SKIP no session\n")
	found := s.Summary()
	fmt.Println(found.Format, found.Total, "tests,", found.Failed, "failed:", found.Failures)
	// Output:
	// tap 3 tests, 1 failed: [log in]
}
