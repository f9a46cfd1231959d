package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/chart/index"
	"github.com/headgate-io/headgate/internal/redact"
)

// suggest finds out what names that are not there may have meant.
func (s *search) suggest(ctx context.Context, entries iter.Seq2[index.Entry, error]) error {
	const most = 3
	unfound, last := s.unfound(), ""
	for e, err := range entries {
		if err := cmp.Or(err, context.Cause(ctx)); err != nil {
			return err
		}
		if e.Name == last {
			continue // its versions stand together
		}
		last = e.Name
		for _, asked := range unfound {
			if near := s.near[asked]; (len(near) < most || last == asked) && !slices.Contains(near, last) && resembles(asked, last) {
				s.near[asked] = append(near, last)
			}
		}
	}
	return nil
}

// resembles reports whether one name is a part of the other, or they are a
// letter or two apart.
func resembles(a, b string) bool {
	a, b = strings.ToLower(strings.Trim(a, "*")), strings.ToLower(b)
	if len(a) > 2 && strings.Contains(b, a) || len(b) > 2 && strings.Contains(a, b) {
		return true
	}
	const long = 100
	return len(a) < long && len(b) < long && distance(a, b) <= min(2, min(len(a), len(b))/3)
}

// distance returns how many letters have to be inserted, removed or replaced to
// make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// missing returns an error about names for which nothing was found.
func (s *search) missing() error {
	var errs []error
	for _, name := range s.unfound() {
		hidden := 0
		for chart, n := range s.hidden {
			if matches(name, chart) {
				hidden += n
			}
		}
		switch near := s.near[name]; {
		case slices.Contains(near, name) && hidden > 0:
			errs = append(errs, fmt.Errorf("chart %q: no version fits, pre-releases were left out (%d): --devel", name, hidden))
		case slices.Contains(near, name):
			errs = append(errs, fmt.Errorf("chart %q: no version fits --version", name))
		case len(near) > 0:
			errs = append(errs, fmt.Errorf("no chart is called %q; there is %s", name, redact.String(strings.Join(near, ", "))))
		default:
			errs = append(errs, fmt.Errorf("no chart is called %q", name))
		}
	}
	return asFailure(errors.Join(errs...))
}
