package source

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"time"

	"sigs.k8s.io/yaml"
)

// A Suspension is an order to leave an object alone, given by a command and not
// by its spec. Servers keep to it; fetch, which is a command itself, does not.
type Suspension struct {
	By     string    `json:"by,omitempty"`     // who gave it
	Reason string    `json:"reason,omitempty"` // what for
	Since  time.Time `json:"since"`
}

// Suspend makes a suspension of the object durable, in place of the one there is.
// The object need not exist. The error wraps [ErrInvalid] for a name that no
// object can have.
func (l *Ledger) Suspend(ref Reference, s Suspension) error {
	s.Since = s.Since.UTC().Truncate(time.Second)
	text, err := yaml.Marshal(s)
	if err == nil {
		err = l.put(ref, holdFile, text)
	}
	if err != nil {
		return fmt.Errorf("suspend %s: %w", ref, err)
	}
	return nil
}

// Resume ends the suspension of an object, durably. The error wraps
// fs.ErrNotExist when there is none.
func (l *Ledger) Resume(ref Reference) error {
	if err := l.drop(ref, holdFile); err != nil {
		return fmt.Errorf("resume %s: %w", ref, err)
	}
	return nil
}

// Suspension returns the suspension of an object, nil when there is none. A
// file that cannot be read suspends its object too: then there are both a
// suspension that says so and an error. An empty one is as good as any; its
// time counts.
func (l *Ledger) Suspension(ref Reference) (*Suspension, error) {
	address, err := ref.address()
	if err != nil {
		return nil, fmt.Errorf("suspension of %s: %w", ref, err)
	}
	if _, err := os.Lstat(l.file(address + holdFile)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	root, err := l.open()
	if root == nil {
		return nil, err
	}
	defer root.Close()
	s, err := readHold(root, address+holdFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		err = fmt.Errorf("ledger: %s is damaged, delete or mend it: %w", l.file(address+holdFile), err)
		s.Reason = "its file cannot be read"
	}
	return &s, err
}

func readHold(root *os.Root, name string) (s Suspension, err error) {
	text, err := read(root, name, maxHold)
	if err != nil {
		return s, err
	}
	if err := yaml.Unmarshal(text, &s); err != nil {
		return Suspension{}, err
	}
	if s.Since.IsZero() {
		if info, err := root.Stat(name); err == nil {
			s.Since = info.ModTime().UTC().Truncate(time.Second)
		}
	}
	return s, nil
}

// Suspensions returns all suspensions. The error joins one for each file that
// cannot be read; its object is suspended all the same.
func (l *Ledger) Suspensions() (map[Reference]Suspension, error) {
	refs, err := l.references(holdFile)
	all := make(map[Reference]Suspension, len(refs))
	for _, ref := range refs {
		s, err1 := l.Suspension(ref)
		if err = errors.Join(err, err1); s != nil {
			all[ref] = *s
		}
	}
	return all, err
}

// put makes data the content of a file of an object.
func (l *Ledger) put(ref Reference, extension string, data []byte) error {
	address, err := ref.address()
	if err != nil {
		return err
	}
	root, err := l.create()
	if err != nil {
		return err
	}
	defer root.Close()
	return l.write(root, address+extension, data)
}

// drop removes files of an object, durably. The error wraps fs.ErrNotExist when
// the last of them does not exist.
func (l *Ledger) drop(ref Reference, extensions ...string) error {
	address, err := ref.address()
	if err != nil {
		return err
	}
	root, err := l.open()
	if err != nil {
		return err
	}
	if root == nil {
		return fs.ErrNotExist
	}
	defer root.Close()
	for _, extension := range extensions {
		if err = root.Remove(address + extension); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	dir := path.Dir(address)
	if err1 := syncDirs(root, dir); err1 != nil && !errors.Is(err1, fs.ErrNotExist) {
		return err1
	}
	for dir != "." && root.Remove(dir) == nil { // as far as they are empty
		dir = path.Dir(dir)
	}
	return err
}
