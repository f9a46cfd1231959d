package document

import (
	"fmt"
	"slices"
	"strings"
)

// An Other is a document that the reader of a stream has no use for.
type Other struct {
	File       string `json:"file"`
	Line       int    `json:"line"`
	Document   int    `json:"document"`
	APIVersion string `json:"apiVersion,omitempty"` // "" of a document that is no object
	Kind       string `json:"kind,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"`
	List       bool   `json:"list,omitempty"` // no mapping
}

// String returns FILE:LINE KIND/NAME.
func (o Other) String() string {
	what := o.Kind + "/" + o.Name
	if o.Kind == "" {
		what = "no object"
	}
	return printable(fmt.Sprintf("%s:%d %s", o.File, o.Line, shorten(what, maxObject)))
}

// Other notes a document that is passed over, the first [MaxErrors] with what they are.
func (s *Stream) Other(o Object) {
	if s.Skipped++; s.Skipped > MaxErrors {
		return
	}
	out := Other{File: s.file, Line: o.Line, Document: s.number, Kind: o.Type, List: o.Node.Kind == List}
	if o.Type != "" {
		out.APIVersion = o.APIVersion()
		out.Namespace, out.Name = o.StringAt("metadata", "namespace"), o.StringAt("metadata", "name")
	}
	s.Others = append(s.Others, out)
}

// A Known is a group and version whose documents are read, with their kinds.
type Known struct {
	Group, Version string
	Kinds          []string
}

func (k Known) apiVersion() string { return strings.TrimPrefix(k.Group+"/"+k.Version, "/") }

// Near returns what the author of an object that is not read probably meant,
// "" when that is another kind of object: a kind or a group that differs in two
// letters, a kind without its group, or one with the end of its group.
func Near(o Object, known []Known) string {
	for _, k := range known {
		kind := slices.Contains(k.Kinds, o.Type)
		switch {
		case o.Group == k.Group && !kind:
			for _, name := range k.Kinds {
				if near(strings.ToLower(o.Type), strings.ToLower(name)) {
					return "kind " + name
				}
			}
		case o.Group == k.Group && o.Version != k.Version,
			o.Group != "" && o.Group != k.Group && near(o.Group, k.Group),
			kind && o.Group == "" && k.Group != "",
			kind && strings.Contains(o.Group, ".") && strings.HasSuffix(k.Group, "."+o.Group):
			return "apiVersion " + k.apiVersion()
		}
	}
	return ""
}

// near reports whether a and b differ in at most two letters.
func near(a, b string) bool {
	const most = 2
	return max(len(a), len(b))-min(len(a), len(b)) <= most && Distance(a, b) <= most
}

// Distance returns how many bytes have to be inserted, removed or replaced to
// make b of a.
func Distance(a, b string) int {
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
