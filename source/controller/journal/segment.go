package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A segment is one file of a journal.
type segment struct {
	first int64 // ID of its first entry, and its name
	size  int64 // bytes
}

// A position is a place in a journal.
type position struct {
	segment int64 // its first ID, 0 for none
	offset  int64
}

const (
	suffix = ".jsonl"
	digits = 20
)

func segmentPath(dir string, first int64) string {
	return filepath.Join(dir, fmt.Sprintf("%0*d%s", digits, first, suffix))
}

// listSegments returns the segments of a directory, the oldest first.
func listSegments(dir string) ([]segment, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []segment
	for _, entry := range entries {
		name, found := strings.CutSuffix(entry.Name(), suffix)
		first, err := strconv.ParseInt(name, 10, 64)
		if !found || len(name) != digits || err != nil || first <= 0 || first >= maxID || !entry.Type().IsRegular() {
			continue
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		list = append(list, segment{first, info.Size()})
	}
	slices.SortFunc(list, func(a, b segment) int { return int(min(max(a.first-b.first, -1), 1)) })
	return list, nil
}

// maxSegment bounds what is read of a file, whoever wrote it, in bytes.
const maxSegment = 64 << 20

// readSegment returns the text of a segment as far as limit, or all of it when
// that is negative. One that is removed has none.
func readSegment(dir string, s segment, limit int64) ([]byte, error) {
	f, err := os.Open(segmentPath(dir, s.first))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if limit < 0 || limit > maxSegment {
		limit = maxSegment
	}
	text := bytes.NewBuffer(make([]byte, 0, min(s.size, limit)+bytes.MinRead))
	_, err = text.ReadFrom(io.LimitReader(f, limit))
	return text.Bytes(), err
}

// lastID returns the highest ID in a segment, or else the one before its first,
// and the length of its whole lines.
func lastID(dir string, s segment) (id, whole int64, err error) {
	text, err := readSegment(dir, s, -1)
	id, whole = lastIn(text, s.first)
	return id, whole, err
}

// lastIn is lastID of the text of a segment.
func lastIn(text []byte, first int64) (id, whole int64) {
	id = first - 1
	n := lines(text, func(line []byte) bool {
		var e Entry
		if json.Unmarshal(line, &e) == nil && valid(e, first) {
			id = max(id, e.ID)
		}
		return true
	})
	return id, int64(n)
}
