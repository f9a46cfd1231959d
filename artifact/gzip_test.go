package artifact

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"
)

// text returns n bytes that compress like source code does.
func text(n int) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields("func return if err != nil { } := range string int for x y () \n\t \n\n package import type struct")
	b := make([]byte, 0, n+10)
	for len(b) < n {
		b = append(append(b, words[rng.IntN(len(words))]...), byte(' '+rng.IntN(50)))
	}
	return b[:n]
}

// boundaryText returns n bytes: text around the boundaries of blocks, where dictionaries matter, and
// zeros, which are cheap, elsewhere.
func boundaryText(n int) []byte {
	const border = 3 * windowSize
	b, around := make([]byte, n), text(2*border)
	for at := 0; at < n; at += maxBlock {
		copy(b[max(at-border, 0):], around[max(border-at, 0):])
	}
	return b
}

// gzipped compresses data, written in pieces of the given sizes, which repeat.
func gzipped(t *testing.T, data []byte, pieces ...int) []byte {
	t.Helper()
	var out bytes.Buffer
	z := newGzipWriter(&out, nil)
	for i := 0; len(data) > 0; i++ {
		n := min(pieces[i%len(pieces)], len(data))
		if m, err := z.Write(data[:n]); m != n || err != nil {
			t.Fatalf("wrote %d of %d: %v", m, n, err)
		}
		data = data[n:]
	}
	must(t, z.Close())
	return out.Bytes()
}

func TestGzipIsDeterministic(t *testing.T) {
	data := boundaryText(3*maxBlock + 777)
	want := gzipped(t, data, len(data))
	procs := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(procs)
	for _, n := range []int{1, 2, 8} {
		runtime.GOMAXPROCS(n)
		for _, pieces := range [][]int{{1 << 30}, {1, 2, 3, 65536}, {maxBlock}, {maxBlock - 1, 1}, {32 << 10, 65537}} {
			if got := gzipped(t, data, pieces...); !bytes.Equal(got, want) {
				t.Errorf("GOMAXPROCS %d, pieces %v: other bytes", n, pieces)
			}
		}
	}
}

// TestGzipGolden pins the encoder: different bytes change the digest of every artifact after an
// upgrade, so an update of the encoder must be announced.
func TestGzipGolden(t *testing.T) {
	const want = "d5cf6fa80e96a29708071cdc17f3924c0c2ccee292dae998e2d961349dec2de8"
	if got := fmt.Sprintf("%x", sha256.Sum256(gzipped(t, text(3*maxBlock+99), 1<<30))); got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
}

// limitedWriter fails after n writes.
type limitedWriter struct {
	n   int
	err error
}

func (l *limitedWriter) Write(p []byte) (int, error) {
	if l.n--; l.n < 0 {
		return 0, l.err
	}
	return len(p), nil
}

func TestGzipWriteErrors(t *testing.T) {
	full := errors.New("disk full")
	data := make([]byte, 4*maxBlock)
	for n := range 7 { // the header, four blocks, the last block, the trailer
		w := &limitedWriter{n, full}
		z := newGzipWriter(w, nil)
		_, err := z.Write(data)
		if closed := z.Close(); !errors.Is(closed, full) || err != nil && !errors.Is(err, full) {
			t.Errorf("failing at write %d: Write %v, Close %v", n, err, closed)
		}
		if again := z.Close(); !errors.Is(again, full) {
			t.Errorf("failing at write %d: second Close %v", n, again)
		}
		if m, err := z.Write(data); m != 0 || !errors.Is(err, full) {
			t.Errorf("failing at write %d: Write after Close %d, %v", n, m, err)
		}
	}
}

// TestGzipEncoder checks that cache keys name the version of the encoder.
func TestGzipEncoder(t *testing.T) {
	mod, err := os.ReadFile("../go.mod")
	must(t, err)
	if !strings.Contains(string(mod), "\t"+encoderVersion+"\n") {
		t.Errorf("go.mod does not require %s: correct the constant, whose change makes cached blocks stale", encoderVersion)
	}
}
