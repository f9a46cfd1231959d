package artifact

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/zeebo/blake3"
)

// A written is a file or directory that Extract wrote; the lines of a record
// are its JSON. Size and time of a file tell quickly that it is unchanged; when
// they differ its content decides, so that a directory may be copied and
// restored. A record lies beside the directory, where no artifact of the
// directory has entries; one that came with an artifact of the parent can only
// describe content of that artifact.
type written struct {
	Name     []byte `json:"name"` // relative, with slashes; any bytes
	Dir      bool   `json:"dir,omitempty"`
	Exec     bool   `json:"exec,omitempty"`
	Size     int64  `json:"size,omitempty"`
	Modified int64  `json:"modified,omitempty"` // nanoseconds since 1970
	Sum      []byte `json:"blake3,omitempty"`
}

// longestLine is the longest line of a record, in bytes: names are shorter.
const longestLine = 1 << 20

func writeRecord(path string, list []*written) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(f)
	lines := json.NewEncoder(out)
	for _, w := range list {
		if err = lines.Encode(w); err != nil {
			break
		}
	}
	return errors.Join(err, out.Flush(), f.Close())
}

// readRecord returns what a record lists, by name. The error wraps
// [fs.ErrNotExist] when there is none.
func readRecord(path string) (map[string]*written, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all := map[string]*written{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		w := new(written)
		if err := json.Unmarshal(lines.Bytes(), w); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all[string(w.Name)] = w
	}
	return all, lines.Err()
}

// changed says what shows that dir is not as an Extract left it, "" if nothing
// does. A killed Extract may have left two records, one for each content that
// dir can have.
func changed(ctx context.Context, dir string) (why string, err error) {
	for _, name := range []string{nextRecord, lastRecord} {
		all, err := readRecord(filepath.Join(besideOf(dir), name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			why = fmt.Sprintf("the record of what was extracted to it cannot be read (%v)", err)
			continue
		}
		if why, err = differs(ctx, all, dir); why == "" || err != nil {
			return why, err
		}
	}
	if why == "" {
		why = "it is not empty, and was not written by an extraction"
	}
	return why, nil
}

// differs names one entry by which dir differs from what all lists.
func differs(ctx context.Context, all map[string]*written, dir string) (why string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		local, err := filepath.Rel(dir, path)
		if err != nil || local == "." {
			return err
		}
		name := filepath.ToSlash(local)
		w := all[name]
		delete(all, name)
		if w == nil {
			why = fmt.Sprintf("%q was added to it since it was extracted", name)
			return fs.SkipAll
		}
		same, err := w.is(path, d)
		if err == nil && !same {
			why = fmt.Sprintf("%q in it was changed since it was extracted", name)
			return fs.SkipAll
		}
		return err
	})
	if err != nil || why != "" || len(all) == 0 {
		return why, err
	}
	var missing []string
	for name := range all {
		missing = append(missing, name)
	}
	return fmt.Sprintf("%q in it was removed since it was extracted", slices.Min(missing)), nil
}

// is reports whether the entry d at path is as it was written.
func (w *written) is(path string, d fs.DirEntry) (bool, error) {
	if w.Dir || !d.Type().IsRegular() {
		return w.Dir && d.IsDir(), nil
	}
	info, err := d.Info()
	if err != nil {
		return false, err
	}
	if info.Size() != w.Size || isExec(info) != w.Exec {
		return false, nil
	}
	if info.ModTime().UnixNano() == w.Modified {
		return true, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	h := blake3.New()
	if _, err := io.Copy(h, f); err != nil {
		return false, err
	}
	return bytes.Equal(h.Sum(nil), w.Sum), nil
}

func isExec(info fs.FileInfo) bool { return info.Mode()&0o111 != 0 }
