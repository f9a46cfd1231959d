package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	layerSize = 200 << 20 // of the compressed layer
	noisy     = 4         // one of so many files is incompressible noise
	mark      = 16 << 10  // bytes of text, about, between two lines that are unique to a copy
)

// A layerKind describes the content of a layer, which has text and noise up to
// its size.
type layerKind struct {
	name string
	join int64 // bytes of source files that form one file; 0 keeps each file
}

var layers = []layerKind{{"many small files", 0}, {"a few large files", 32 << 20}}

// layerTo writes the layer called name to out.
func layerTo(out io.Writer, name string) error {
	for _, kind := range layers {
		if kind.name != name {
			continue
		}
		w := bufio.NewWriterSize(out, 1<<20)
		return errors.Join(makeLayer(context.Background(), w, kind), w.Flush())
	}
	return fmt.Errorf("there is no layer of %s", name)
}

// makeApart runs layerTo in another process. The peak memory of a child process
// is at least the memory of its parent, so the parent must stay small.
func makeApart(ctx context.Context, out io.Writer, name string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "-make", name)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	return cmd.Run()
}

// A layerWriter writes a layer.
type layerWriter struct {
	kind   layerKind
	packed counter
	tar    *tar.Writer
	noise  *rand.ChaCha8
	files  int
	joined bytes.Buffer // text of a large file
}

// errFull ends the generation of a layer.
var errFull = errors.New("the layer has its size")

// makeLayer writes a gzip-compressed layer to out: repeated copies of the files
// of src, each with unique lines, and noise.
func makeLayer(ctx context.Context, out io.Writer, kind layerKind) error {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env GOROOT: %w", err)
	}
	src := filepath.Join(strings.TrimSpace(string(root)), "src")
	m := &layerWriter{kind: kind, packed: counter{w: out}, noise: rand.NewChaCha8([32]byte{1})}
	z := gzip.NewWriter(&m.packed)
	m.tar = tar.NewWriter(z)
	for n := 0; err == nil; n++ {
		err = m.copy(src, n)
	}
	if err != errFull {
		return err
	}
	return errors.Join(m.tar.Close(), z.Close())
}

// copy adds copy n of the files of src.
func (m *layerWriter) copy(src string, n int) error {
	return filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(src, path)
		if err != nil {
			return err
		}
		return m.text(fmt.Sprintf("copy%d/%s", n, filepath.ToSlash(name)), marked(data, n))
	})
}

// marked returns text with additional lines that are unique to copy n.
func marked(text []byte, n int) []byte {
	out := fmt.Appendf(nil, "// copy %d\n", n)
	for since, line := 0, []byte(nil); len(text) > 0; {
		end := bytes.IndexByte(text, '\n') + 1
		if end == 0 {
			end = len(text)
		}
		line, text = text[:end], text[end:]
		out = append(out, line...)
		if since += len(line); since > mark {
			out, since = fmt.Appendf(out, "// copy %d\n", n), 0
		}
	}
	return out
}

// text adds a file, or collects it for a large one, and adds noise after every
// few files.
func (m *layerWriter) text(name string, data []byte) error {
	if m.kind.join > 0 {
		m.joined.Write(data)
		if int64(m.joined.Len()) < m.kind.join {
			return nil
		}
		name, data = fmt.Sprintf("data/%03d.txt", m.files), m.joined.Bytes()
		defer m.joined.Reset()
	}
	if err := m.add(name, data); err != nil {
		return err
	}
	if m.files%noisy != noisy-1 {
		return nil
	}
	random := make([]byte, len(data))
	m.noise.Read(random)
	return m.add(name+".bin", random)
}

func (m *layerWriter) add(name string, data []byte) error {
	if m.packed.n >= layerSize {
		return errFull
	}
	m.files++
	if err := m.tar.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err := m.tar.Write(data)
	return err
}

// A counter counts the bytes written through it.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
