package bucket

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

// What was copied counts once all of the artifact was read: not when time was up before.
func TestEarlierCutShort(t *testing.T) {
	for name, end := range map[string]error{"at its end": nil, "failing": errors.New("damaged")} {
		t.Run(name, func(t *testing.T) {
			why := errors.New("time is up")
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(why)
			rest := io.MultiReader(strings.NewReader("rest"), readFunc(func([]byte) (int, error) {
				if end == nil {
					end = io.EOF
				}
				return 0, end
			}))
			e := &previousArtifact{archive: io.NopCloser(rest), rest: bufio.NewReader(rest), forget: func() {}}
			if err := e.end(ctx); !errors.Is(err, why) {
				t.Errorf("%v", err)
			}
		})
	}
}
