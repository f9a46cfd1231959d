package oci_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/testenv/measure"
	"github.com/headgate-io/headgate/oci"
)

func TestHostileBlobs(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	d := testenv.Blob{Data: data}.Descriptor()
	for name, row := range map[string]struct {
		content []byte
		told    bool // its length
		want    string
	}{
		"right":             {data, true, ""},
		"right, untold":     {data, false, ""},
		"short":             {data[:len(data)-1], true, "of 1048576 bytes"},
		"short, untold":     {data[:len(data)-1], false, "after 1048575 of 1048576 bytes"},
		"empty, untold":     {nil, false, "after 0 of 1048576 bytes"},
		"long":              {append(bytes.Clone(data), 'x'), true, "goes on behind"},
		"long, untold":      {append(bytes.Clone(data), 'x'), false, "goes on behind"},
		"of another digest": {bytes.Repeat([]byte("x"), len(data)), true, "instead of"},
	} {
		t.Run(name, func(t *testing.T) {
			g := testenv.StartRegistry(t, testenv.RegistryConfig{})
			g.Break(serve(testenv.GetBlob, func(w http.ResponseWriter, _ *http.Request) {
				if row.told {
					w.Header().Set("Content-Length", strconv.Itoa(len(row.content)))
				} else {
					http.NewResponseController(w).Flush()
				}
				w.Write(row.content)
			}))
			r := plain(t, g)
			for way, read := range map[string]func(io.Reader) (int64, error){
				"Read": func(c io.Reader) (int64, error) { n, err := io.ReadAll(c); return int64(len(n)), err },
				"exactly": func(c io.Reader) (int64, error) {
					n, err := io.ReadFull(c, make([]byte, len(data)))
					return int64(n), err
				},
			} {
				content, err := r.Blob(t.Context(), d)
				if err == nil {
					_, err = read(content)
					if again, more := content.Read(make([]byte, 1)); again != 0 || more == nil || row.want != "" && more == io.EOF {
						t.Error(way, "goes on:", again, more)
					}
					content.Close()
				}
				if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want) || !errors.As(err, new(*oci.ContentError))) {
					if way == "exactly" && strings.Contains(row.want, "goes on") || way == "exactly" && row.want == "instead of" {
						continue // io.ReadFull keeps an error that comes with the last byte to itself
					}
					t.Error(way, err)
				}
			}
		})
	}
	r := plain(t, testenv.StartRegistry(t, testenv.RegistryConfig{}))
	for _, bad := range []ocispec.Descriptor{{Digest: d.Digest, Size: -1}, {Digest: "x", Size: 1}, {Size: 1}} {
		if _, err := r.Blob(t.Context(), bad); err == nil {
			t.Error(bad, "is accepted")
		}
	}
}

// A blob is not held in memory.
func TestBlobStreams(t *testing.T) {
	const size = 256 << 20
	h := digest.Canonical.Digester()
	zeros := make([]byte, 1<<20)
	for range size >> 20 {
		h.Hash().Write(zeros)
	}
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	g.Break(serve(testenv.GetBlob, func(w http.ResponseWriter, _ *http.Request) {
		for range size >> 20 {
			w.Write(zeros)
		}
	}))
	r := plain(t, g)
	used := measure.Allocated(func() {
		content, err := r.Blob(t.Context(), ocispec.Descriptor{Digest: h.Digest(), Size: size})
		if err != nil {
			t.Fatal(err)
		}
		defer content.Close()
		if n, err := io.Copy(io.Discard, content); n != size || err != nil {
			t.Error(n, err)
		}
	})
	if used > 8<<20 {
		t.Errorf("%d MiB were allocated", used>>20)
	}
}
