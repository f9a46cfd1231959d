// Package bundle holds charts as trees of files: it reads them from archives and
// from directories, and packs them, the same bytes on any machine.
package bundle
