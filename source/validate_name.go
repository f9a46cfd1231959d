package source

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/internal/document"
)

// qualifiedForm is that of labels of object metadata.
var qualifiedForm = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)

const maxAnnotations = 256 << 10 // bytes of all keys and values

func optionalName(name string) error {
	if name == "" {
		return nil
	}
	return objectName(name)
}

func checkMetadata(m *Metadata, found *document.Findings) {
	if m.Name == "" && m.GenerateName != "" {
		found.Add("metadata.name", "is required: generateName needs an API server")
	} else if err := objectName(m.Name); err != nil {
		found.Add("metadata.name", "%w", err)
	}
	if err := document.CheckNamespace(m.space()); err != nil {
		found.Add("metadata.namespace", "%w", err)
	}
	checkLabels(m.Labels, found)
	checkAnnotations(m.Annotations, found)
}

func checkLabels(labels map[string]string, found *document.Findings) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		field := "metadata.labels[" + key + "]"
		if err := qualifiedKey(key); err != nil {
			found.Add(field, "%w", err)
		} else if v := labels[key]; v != "" && (len(v) > 63 || !qualifiedForm.MatchString(v)) {
			found.Add(field, "%s is no label value: write at most 63 letters, digits, '-', '_' and '.'", quote(v))
		}
	}
}

func checkAnnotations(annotations map[string]string, found *document.Findings) {
	size := 0
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		size += len(key) + len(annotations[key])
		if err := qualifiedKey(strings.ToLower(key)); err != nil {
			found.Add("metadata.annotations["+key+"]", "%w", err)
		}
	}
	if size > maxAnnotations {
		found.Add("metadata.annotations", "must hold at most %d KiB", maxAnnotations>>10)
	}
}

// qualifiedKey checks a key of labels or annotations: [PREFIX/]NAME.
func qualifiedKey(key string) error {
	prefix, name, found := strings.Cut(key, "/")
	if !found {
		prefix, name = "", key
	}
	if found && !document.Subdomain(prefix) ||
		len(name) > 63 || !qualifiedForm.MatchString(name) {
		return errors.New("the key must be [PREFIX/]NAME: a DNS name, and at most 63 letters, digits, '-', '_' and '.'")
	}
	return nil
}

// refName checks a full ref name; ^{} after it asks for what a tag points to.
func refName(name string) error {
	if name == "" || validRef(strings.TrimSuffix(name, "^{}")) {
		return nil
	}
	return fmt.Errorf("%s is no git ref name: write one such as refs/heads/main", quote(name))
}

// refPart checks a branch or tag.
func refPart(prefix, name string) error {
	if name == "" || name[0] != '-' && validRef(prefix+name) {
		return nil
	}
	return fmt.Errorf("%s is no name that git allows after %s", quote(name), prefix)
}

func isASCIIControl(r rune) bool { return r < ' ' || r == 0x7f }

// validRef applies the rules of git check-ref-format.
func validRef(name string) bool {
	if name == "@" || strings.HasSuffix(name, ".") || strings.Contains(name, "..") || strings.Contains(name, "@{") ||
		strings.ContainsAny(name, ` ~^:?*[\`) || strings.ContainsFunc(name, isASCIIControl) {
		return false
	}
	for _, part := range strings.Split(name, "/") {
		if part == "" || part[0] == '.' || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return true
}
