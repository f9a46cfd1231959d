package artifact_test

import (
	"bytes"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
)

func TestReadBack(t *testing.T) {
	var packed, again bytes.Buffer
	if _, err := artifact.Pack(t.Context(), &packed, golden()); err != nil {
		t.Fatal(err)
	}
	tree, err := artifact.Read(&packed, artifact.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	if err := fstest.TestFS(tree, "a.txt", "bin/run.sh", "empty"); err != nil {
		t.Error(err)
	}
	if _, err := artifact.Tar(t.Context(), &again, tree); err != nil {
		t.Fatal(err)
	}
	if got := sum(again.Bytes()); got != goldenTar {
		t.Errorf("packed, read and packed again: %s, want %s", got, goldenTar)
	}
}
