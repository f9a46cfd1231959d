package chart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
)

// repositoryContent is an index that is to be published.
type repositoryContent struct {
	*found
	at string // the URL as messages tell it
}

// Verify implements [source.Content]: what spec.verify asks for is about each
// chart, and is checked where it is fetched.
func (c *repositoryContent) Verify(context.Context) (source.Verification, error) {
	return source.Verification{}, nil
}

// WriteTo implements [source.Content]: the index as it came. The store hashes
// what it writes; that has to be the revision.
func (c *repositoryContent) WriteTo(ctx context.Context, w io.Writer) (source.Report, error) {
	report := source.Report{Message: fmt.Sprintf("stored fetched index of size %s from '%s'", human(c.size), c.at)}
	n, err := io.Copy(w, io.NewSectionReader(c.file, 0, c.size))
	report.Report = artifact.Report{Files: 1, Bytes: n}
	report.Notes = append(c.notes, c.skipped()...)
	if err != nil {
		return report, err
	}
	if s, ok := w.(interface{ Sum() string }); ok {
		if sum := s.Sum(); strings.HasPrefix(sum, "sha256:") && sum != revisionOf(c.digest).ID {
			return report, errors.New("the index is not what was received: the spool was changed")
		}
	}
	return report, nil
}

// Close implements [source.Content].
func (c *repositoryContent) Close() error { return c.close() }

// shownSkipped is how many entries that cannot be used are told of one by one.
const shownSkipped = 5

// skipped tells which entries of the index nobody can use.
func (c *repositoryContent) skipped() (notes []string) {
	total := c.summary.SkippedTotal
	if total == 0 {
		return nil
	}
	var text []string
	for _, m := range c.summary.Skipped[:min(len(c.summary.Skipped), shownSkipped)] {
		text = append(text, fmt.Sprintf("chart %.80q version %.80q (line %d): %.200s", m.Chart, m.Version, m.Line, redact.String(m.Problem)))
	}
	if more := total - len(text); more > 0 {
		text = append(text, fmt.Sprintf("and %d more", more))
	}
	entries := "entries"
	if total == 1 {
		entries = "entry"
	}
	return []string{fmt.Sprintf("%d %s of the index cannot be used: %s", total, entries, strings.Join(text, "; "))}
}

// human returns a size as people read it, in powers of 1000 (reference A3).
func human(bytes int64) string {
	size, unit := float64(bytes), 0
	units := []string{"B", "kB", "MB", "GB", "TB"}
	for size >= 1000 && unit < len(units)-1 {
		size, unit = size/1000, unit+1
	}
	return fmt.Sprintf("%.4g%s", size, units[unit])
}
