package index_test

import (
	"fmt"
	"strings"

	"github.com/headgate-io/headgate/chart/index"
)

const example = `apiVersion: v1
entries:
  podinfo:
  - name: podinfo
    version: 6.6.0-rc.1
    urls: [podinfo-6.6.0-rc.1.tgz]
  - name: podinfo
    version: 6.5.4
    urls: [podinfo-6.5.4.tgz]
  - name: podinfo
    version: 6.5.3
    urls: []
`

func Example() {
	e, err := index.Select(index.Entries(strings.NewReader(example), "podinfo"), "6.x")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(e.Version, e.URLs[0])
	// Output: 6.5.4 podinfo-6.5.4.tgz
}

func ExampleCheck() {
	s, err := index.Check(strings.NewReader(example))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Versions, "versions")
	for _, m := range s.Skipped {
		fmt.Printf("line %d: %q %q: %s\n", m.Line, m.Chart, m.Version, m.Problem)
	}
	// Output:
	// 2 versions
	// line 10: "podinfo" "6.5.3": urls is empty
}
