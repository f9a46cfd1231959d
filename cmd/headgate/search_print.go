package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
)

// A chartVersion is one version of a chart as search prints it.
type chartVersion struct {
	Name        string   `json:"name"`
	Version     string   `json:"version"`
	AppVersion  string   `json:"appVersion,omitempty"`
	Created     string   `json:"created,omitempty"` // RFC 3339
	Description string   `json:"description,omitempty"`
	Type        string   `json:"type,omitempty"`
	Deprecated  bool     `json:"deprecated,omitempty"`
	Digest      string   `json:"digest,omitempty"`
	URLs        []string `json:"urls,omitempty"`
}

// day returns when a version was created, for people.
func (v chartVersion) day() string {
	day, _, _ := strings.Cut(v.Created, "T")
	return cmp.Or(day, "-")
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// versions returns what was found, by name, the newest version first. Text of
// an index is somebody else's: it is printed without control characters.
func (s *search) versions() []chartVersion {
	var all []candidate
	for _, found := range s.found {
		all = append(all, found...)
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), a.compare(b))
	})
	list := make([]chartVersion, len(all))
	for i, c := range all {
		list[i] = chartVersion{
			Name: redact.String(c.Name), Version: redact.String(c.Version), AppVersion: redact.String(c.AppVersion),
			Created: stamp(c.Created), Description: redact.String(c.Description), Type: redact.String(c.Type), Deprecated: c.Deprecated,
			Digest: redact.String(c.Digest),
		}
		for _, u := range c.URLs {
			list[i].URLs = append(list[i].URLs, redact.String(u))
		}
	}
	return list
}

func (s *search) print(w io.Writer, format string) error {
	list := s.versions()
	switch format {
	case "json", "yaml":
		return printValue(w, format, list)
	case "name":
		for _, v := range list {
			if _, err := fmt.Fprintf(w, "%s@%s\n", v.Name, v.Version); err != nil {
				return err
			}
		}
		return nil
	}
	if len(list) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	head, wide := "NAME\tVERSION\tAPP VERSION\tCREATED\tDESCRIPTION", format == "wide"
	if wide {
		head = "NAME\tVERSION\tAPP VERSION\tCREATED\tDIGEST\tDESCRIPTION"
	}
	fmt.Fprintln(t, head)
	for _, v := range list {
		cells := []string{v.Name, v.Version, cmp.Or(v.AppVersion, "-"), v.day()}
		if wide {
			cells = append(cells, cmp.Or(v.Digest, "-"))
		}
		fmt.Fprintln(t, strings.Join(append(cells, v.remark(wide)), "\t"))
	}
	return t.Flush()
}

// remark describes a version in a line, as short as tables want it unless it is
// to be whole.
func (v chartVersion) remark(whole bool) string {
	const most = 60
	text := v.Description
	if v.Deprecated {
		text = strings.TrimSpace("(deprecated) " + text)
	}
	if runes := []rune(text); len(runes) > most && !whole {
		text = string(runes[:most-1]) + "…"
	}
	return cmp.Or(text, "-")
}
