package document

import (
	"errors"
	"fmt"
	"regexp"
)

// The forms of names (RFC 1123).
var (
	subdomainForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	labelForm     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
)

// CheckName says what is wrong with the name of an object.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("is required")
	case !Subdomain(name):
		return fmt.Errorf("%s is no name: write at most 253 lower-case letters, digits, '-' and '.', "+
			"with a letter or digit at both ends", Quote(name))
	}
	return nil
}

// CheckNamespace says what is wrong with the name of a namespace.
func CheckNamespace(name string) error {
	if len(name) > 63 || !labelForm.MatchString(name) {
		return fmt.Errorf("%s is no namespace: write at most 63 lower-case letters, digits and '-', "+
			"with a letter or digit at both ends", Quote(name))
	}
	return nil
}

// Subdomain reports whether name has the form of a DNS name in lower case.
func Subdomain(name string) bool { return len(name) <= 253 && subdomainForm.MatchString(name) }
