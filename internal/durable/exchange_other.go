//go:build !linux

package durable

import "errors"

// Exchange makes two existing directories change places, which this system cannot.
func Exchange(a, b string) error { return errors.ErrUnsupported }
