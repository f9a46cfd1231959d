package main

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

const module = "github.com/headgate-io/headgate"

// A function is a function declaration or literal, identified by the position of its body.
type function struct {
	file string // path in the module
	line int
	name string // for a literal, the name of the enclosing declaration and a star
}

func (f function) String() string { return fmt.Sprintf("%s:%d %s", f.file, f.line, f.name) }

// A position is a line and a column.
type position struct{ line, column int }

func (p position) before(q position) bool {
	return p.line < q.line || p.line == q.line && p.column < q.column
}

// A body is the range of a function's statements.
type body struct {
	function
	from, to position
}

// coveredFunctions returns the functions with at least one executed block of their own statements in a
// coverage profile.
func coveredFunctions(profile string) (map[function]bool, error) {
	in, err := os.Open(profile)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	all := map[function]bool{}
	bodies := map[string][]body{}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		path, block, found := strings.Cut(lines.Text(), ".go:")
		if !found {
			continue // the line with the mode
		}
		var from, to position
		var statements, count int
		if _, err := fmt.Sscanf(block, "%d.%d,%d.%d %d %d", &from.line, &from.column, &to.line, &to.column, &statements, &count); err != nil {
			return nil, fmt.Errorf("%s: %w", lines.Text(), err)
		}
		if count == 0 {
			continue
		}
		file := strings.TrimPrefix(path, module+"/") + ".go"
		if bodies[file] == nil {
			if bodies[file], err = functions(file); err != nil {
				return nil, err
			}
		}
		// A literal comes after its enclosing function, so the last match is the innermost.
		var innermost *body
		for i, b := range bodies[file] {
			if !from.before(b.from) && from.before(b.to) {
				innermost = &bodies[file][i]
			}
		}
		if innermost == nil {
			return nil, fmt.Errorf("%s:%d: no function is there", file, from.line)
		}
		all[innermost.function] = true
	}
	return all, nil
}

// functions returns the bodies of the functions of a file.
func functions(file string) (all []body, err error) {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, filepath.Join("..", filepath.FromSlash(file)), nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	add := func(name string, b *ast.BlockStmt) {
		from, to := set.Position(b.Lbrace), set.Position(b.Rbrace)
		all = append(all, body{function{file, from.Line, name}, position{from.Line, from.Column}, position{to.Line, to.Column + 1}})
	}
	for _, d := range parsed.Decls {
		name := "var"
		if f, is := d.(*ast.FuncDecl); is {
			if f.Body == nil {
				continue
			}
			name = f.Name.Name
			add(name, f.Body)
		}
		ast.Inspect(d, func(n ast.Node) bool {
			if f, is := n.(*ast.FuncLit); is {
				add(name+"*", f.Body)
			}
			return true
		})
	}
	return all, nil
}
