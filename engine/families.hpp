// Families: the boards whose names differ only behind their second `@`, so the scopes of one window.
//
//   "arcade@daily:2026-05-04@" ──▸ Family ──▸ numbers of its boards, in no particular order
//
// A board stores its family and its index there, so that adding and removing it needs no search. The scope `global` is
// in no family: a board without other scopes pays nothing. Writers exclude readers, as for boards.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "memory.hpp"

namespace rankd {

struct Family {
  std::vector<uint32_t> boards;
  const std::string* prefix = nullptr;  // of their names
};

class Families {
 public:
  explicit Families(Regions& regions) : regions_(regions) {}

  // The prefix of a name; empty for a name without a family.
  static std::string_view prefix_of(std::string_view name) {
    const size_t first = name.find('@');
    const size_t second = first == name.npos ? name.npos : name.find('@', first + 1);
    if (second == name.npos || name.substr(second + 1) == "global") return {};
    return name.substr(0, second + 1);
  }

  const Family* find(std::string_view prefix) const {
    const auto found = families_.find(prefix);
    return found == families_.end() ? nullptr : &found->second;
  }

  // Appends a new board to its family, and returns the family; null for none.
  Family* join(std::string_view name, uint32_t board) {
    const std::string_view prefix = prefix_of(name);
    if (prefix.empty()) return nullptr;
    auto found = families_.find(prefix);
    if (found == families_.end()) {
      found = families_.emplace(std::string(prefix), Family{}).first;
      found->second.prefix = &found->first;
      regions_.note_taken(head_bytes(found->first), Purpose::boards);
    }
    Family& family = found->second;
    const size_t before = family.boards.capacity();
    family.boards.push_back(board);
    regions_.note_taken((family.boards.capacity() - before) * sizeof(uint32_t), Purpose::boards);
    return &family;
  }

  // Removes the board at a place; returns the board that moved there, or kNone.
  uint32_t leave(Family& family, uint32_t place) {
    const uint32_t last = family.boards.back();
    family.boards.pop_back();
    if (family.boards.empty()) {
      regions_.note_given(family.boards.capacity() * sizeof(uint32_t) + head_bytes(*family.prefix), Purpose::boards);
      families_.erase(families_.find(*family.prefix));
      return kNone;
    }
    if (place == family.boards.size()) return kNone;
    family.boards[place] = last;
    return last;
  }

  template <class Visit>
  void each(Visit visit) const {
    for (const auto& [prefix, family] : families_) visit(prefix, family);
  }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };

  // The bytes of a family's record: its prefix and, approximately, its node in the map.
  static size_t head_bytes(const std::string& prefix) { return sizeof(Family) + sizeof(prefix) + prefix.size() + 16; }

  Regions& regions_;
  std::unordered_map<std::string, Family, Hash, std::equal_to<>> families_;
};

}  // namespace rankd
