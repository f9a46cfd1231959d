package exchange

import (
	"fmt"
	"io"
	"os"
)

// An Environment looks up variables of the environment.
type Environment func(name string) (value string, ok bool)

// NewEnvironment returns lookup, or when that is nil the environment of the process.
func NewEnvironment(lookup func(string) (string, bool)) Environment {
	if lookup == nil {
		return os.LookupEnv
	}
	return lookup
}

// Value returns the value of a variable, "" when it is not set.
func (e Environment) Value(name string) string {
	v, _ := e(name)
	return v
}

// Has reports whether all variables have a value.
func (e Environment) Has(names ...string) bool {
	for _, name := range names {
		if e.Value(name) == "" {
			return false
		}
	}
	return true
}

// File returns the content of a file that a variable names; more than
// [MaxAnswer] bytes are an error.
func File(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxAnswer+1))
	if err == nil && len(data) > MaxAnswer {
		err = fmt.Errorf("%s has more than %d bytes", name, MaxAnswer)
	}
	return data, err
}
