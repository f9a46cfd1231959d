package bundle_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/chart/internal/bundle"
)

// The tar stream of a chart does not change between releases.
func TestTheTarStreamIsPinned(t *testing.T) {
	const want = "e5050daa2d1c2465f53ace55f788df08e783b091db5e144d8d9d38e597fe174d"
	out := pack(t, plain.open(t), bundle.Edit{Version: "1.2.3+4", Values: []byte("a: 2\n"), Charts: []*bundle.Chart{small("sub", "0.1.0").open(t)}})
	if got := fmt.Sprintf("%x", sha256.Sum256(ungzip(t, out))); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	r := tar.NewReader(bytes.NewReader(ungzip(t, out)))
	var names []string
	for {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		must(t, err)
		names = append(names, h.Name)
	}
	if got := strings.Join(names, " "); got != ". plain plain/Chart.yaml plain/README.md plain/charts plain/charts/sub plain/charts/sub/Chart.yaml plain/crds plain/crds/crd.yaml plain/files plain/files/data.bin "+
		"plain/templates plain/templates/_helpers.tpl plain/templates/config.yaml plain/templates/tests plain/templates/tests/one.yaml plain/values.schema.json plain/values.yaml" {
		t.Errorf("entries %s", got)
	}
}
