package yaml_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/headgate-io/headgate/chart/internal/yaml"
)

// A scalar on one line may be longer than any buffer, and end anywhere in one.
func TestLongScalars(t *testing.T) {
	for _, n := range []int{8<<10 - 1, 8 << 10, 60_000, 64<<10 - 9, 64<<10 - 8, 64<<10 - 7, 64 << 10, 64<<10 + 1, 200_000, 1_000_000} {
		text := strings.Repeat("abcd", n/4) + strings.Repeat("e", n%4)
		for _, form := range []string{"%s", "'%s'", `"%s"`, "|-\n  %s", ">-\n  %s"} {
			doc := "a: " + fmt.Sprintf(form, text) + "\nb: c\n"
			for _, in := range []io.Reader{strings.NewReader(doc), iotest.HalfReader(strings.NewReader(doc))} {
				r := yaml.NewReader(in, yaml.Limits{})
				var got []string
				for {
					ev, err := r.Next()
					if err != nil {
						if err != io.EOF {
							t.Errorf("%d bytes as %.4q: %v", n, form, err)
						}
						break
					}
					if ev.Kind == yaml.Scalar {
						got = append(got, string(ev.Value))
					}
				}
				if len(got) != 4 || got[1] != text || got[3] != "c" {
					t.Errorf("%d bytes as %.4q: %d scalars, the second of %d bytes", n, form, len(got), len(got[min(1, len(got)-1)]))
				}
			}
		}
	}
}
