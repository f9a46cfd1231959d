package journal

import (
	"bytes"
	"context"
	"fmt"
	"slices"
)

// read returns the entries that a query selects, as far as end, or all when
// that is the zero position. It goes back from the newest.
func read(ctx context.Context, dir string, q Query, end position) ([]Entry, error) {
	f, err := q.filter()
	if err != nil {
		return nil, err
	}
	list, err := listSegments(dir)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	var found []Entry
	for _, s := range slices.Backward(list) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		limit := int64(-1)
		switch {
		case end.segment == 0:
		case s.first > end.segment:
			continue
		case s.first == end.segment:
			limit = end.offset
		}
		text, err := readSegment(dir, s, limit)
		if err != nil {
			return nil, fmt.Errorf("journal: %w", err)
		}
		found = f.newest(found, text, s.first)
		if f.full(found) || s.first <= f.After+1 { // all before have lower IDs
			break
		}
	}
	slices.Reverse(found)
	return found, nil
}

func (f *filter) full(found []Entry) bool { return f.Limit > 0 && len(found) >= f.Limit }

// newest appends the selected entries of the text of a segment to found, the newest first.
func (f *filter) newest(found []Entry, text []byte, segment int64) []Entry {
	for end := bytes.LastIndexByte(text, '\n'); end >= 0 && !f.full(found); {
		begin := bytes.LastIndexByte(text[:end], '\n')
		if e, ok := f.decode(text[begin+1:end], segment); ok {
			found = append(found, e)
		}
		end = begin
	}
	return found
}
