package artifact_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/artifact"
)

// childDir is the variable that turns this test binary into a process that writes to the store in
// that directory.
const childDir = "ARTIFACT_TEST_CHILD"

func startChild(t *testing.T, test, dir string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$", "-test.count=1")
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	must(t, err)
	return cmd, bufio.NewScanner(out)
}

// TestChildPut is not a test by itself: it puts artifacts and prints each step until it is killed.
func TestChildPut(t *testing.T) {
	dir := os.Getenv(childDir)
	if dir == "" {
		return
	}
	s, err := artifact.OpenStore(artifact.StoreConfig{Dir: dir, Keep: -1, KeepFor: -1})
	must(t, err)
	for i := 0; ; i++ {
		object := fmt.Sprintf("gitrepository/default/app%d", i%3)
		a, err := s.Put(t.Context(), object, "a.tar.gz", func(w io.Writer) error {
			for range 4 {
				fmt.Println("writing")
				if _, err := w.Write(bytes.Repeat([]byte{byte(rand.Uint32())}, 1<<rand.IntN(17))); err != nil {
					return err
				}
			}
			fmt.Println("written")
			return nil
		})
		must(t, err)
		must(t, second(s.Point(object, "latest.tar.gz", a)))
		line, err := json.Marshal(a)
		must(t, err)
		fmt.Println(string(line))
	}
}

// A process may be killed at any point: artifacts that it acknowledged are present, others are
// invisible, and a sweep removes the rest.
func TestKilledWriters(t *testing.T) {
	dir := t.TempDir()
	var acknowledged []artifact.Artifact
	for range 25 {
		cmd, lines := startChild(t, "TestChildPut", dir)
		for range rand.IntN(20) {
			if !lines.Scan() {
				t.Fatal("the writer ended by itself:", cmd.Wait())
			}
			acknowledged = acknowledge(t, acknowledged, lines.Text())
		}
		must(t, cmd.Process.Kill())
		for lines.Scan() { // lines printed before it was killed count as well
			acknowledged = acknowledge(t, acknowledged, lines.Text())
		}
		cmd.Wait()
	}
	s, _ := openStore(t, artifact.StoreConfig{Dir: dir})
	left, err := s.Sweep(t.Context())
	must(t, err)
	if left.Files == 0 || len(acknowledged) == 0 {
		t.Errorf("%d temporary files were left and %d artifacts stored: the test kills at the wrong points", left.Files, len(acknowledged))
	}
	for _, a := range acknowledged {
		if err := errors.Join(s.Check(a), s.Verify(t.Context(), a)); err != nil {
			t.Error(err)
		}
	}
	for a, err := range s.All() {
		if err = errors.Join(err, s.Verify(t.Context(), a)); err != nil {
			t.Error("visible:", err)
		}
	}
	for _, name := range files(t, dir) {
		if strings.HasPrefix(name, ".store/tmp/") {
			t.Errorf("%s is still there", name)
		}
	}
	t.Logf("%d artifacts acknowledged, %+v swept", len(acknowledged), left)
}

// acknowledge appends the artifact in a line of the writer, if the line has one.
func acknowledge(t *testing.T, list []artifact.Artifact, line string) []artifact.Artifact {
	t.Helper()
	var a artifact.Artifact
	if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &a) != nil {
		return list
	}
	return append(list, a)
}
