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
	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/internal/redact"
)

// A suggestion is a name that is there, and how far it is from the one asked for.
type suggestion struct {
	name     string
	distance int
}

// suggest finds out what names that are not there may have meant, the nearest first.
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
			d, ok := resembles(asked, last)
			near := s.near[asked]
			at, there := slices.BinarySearchFunc(near, suggestion{last, d}, func(a, b suggestion) int {
				return cmp.Or(a.distance-b.distance, strings.Compare(a.name, b.name))
			})
			if ok && !there {
				near = slices.Insert(near, at, suggestion{last, d})
				s.near[asked] = near[:min(most, len(near))]
			}
		}
	}
	return nil
}

// resembles reports how far a name is from another, and whether that is near:
// one is a part of the other, or they are a letter or two apart.
func resembles(a, b string) (int, bool) {
	a, b = strings.ToLower(strings.Trim(a, "*")), strings.ToLower(b)
	const long = 100
	if len(a) > long || len(b) > long {
		return 0, false
	}
	d, short := document.Distance(a, b), min(len(a), len(b))
	return d, d <= min(2, short/3) || short > 2 && (strings.Contains(b, a) || strings.Contains(a, b))
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
		var near []string
		for _, n := range s.near[name] {
			near = append(near, n.name)
		}
		switch {
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
