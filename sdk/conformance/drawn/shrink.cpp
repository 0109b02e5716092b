#include "conformance/drawn/shrink.hpp"

#include <utility>

namespace strata::conformance {

namespace {

class Shrinking {
 public:
  Shrinking(Choices failing, int worlds, const std::function<std::optional<Choices>(const Choices&)>& fails)
      : best_(std::move(failing)), left_(worlds), fails_(fails) {}

  Choices run() {
    while (leave_out() || lower()) {
    }
    return best_;
  }

 private:
  // Takes a candidate that still fails and is simpler.
  bool take(const Choices& candidate) {
    if (left_ <= 0) return false;
    --left_;
    const std::optional<Choices> took = fails_(candidate);
    const bool simpler = took && (took->size() < best_.size() || (took->size() == best_.size() && *took < best_));
    if (simpler) best_ = *took;
    return simpler;
  }

  // Choices side by side, many at first.
  bool leave_out() {
    bool any = false;
    for (std::size_t count = best_.size() / 2; count > 0; count /= 2)
      for (std::size_t at = 0; at + count <= best_.size() && left_ > 0;) {
        Choices candidate = best_;
        const auto begin = candidate.begin() + static_cast<std::ptrdiff_t>(at);
        candidate.erase(begin, begin + static_cast<std::ptrdiff_t>(count));
        if (take(candidate))
          any = true;
        else
          at += count;
      }
    return any;
  }

  // Each choice separately: to 0, else to half, else by 1.
  bool lower() {
    bool any = false;
    for (std::size_t at = 0; at < best_.size() && left_ > 0; ++at) {
      bool lowered = true;
      while (lowered && at < best_.size() && best_[at] > 0 && left_ > 0) {
        lowered = false;
        const std::uint64_t now = best_[at];
        for (const std::uint64_t less : {std::uint64_t{0}, now / 2, now - 1}) {
          if (less >= now || (less == 0 && now == 1 && lowered)) continue;
          Choices candidate = best_;
          candidate[at] = less;
          if (!take(candidate)) continue;
          any = lowered = true;
          break;
        }
      }
    }
    return any;
  }

  Choices best_;
  int left_;
  const std::function<std::optional<Choices>(const Choices&)>& fails_;
};

}  // namespace

Choices shrunk(Choices failing, int worlds, const std::function<std::optional<Choices>(const Choices&)>& fails) {
  return Shrinking(std::move(failing), worlds, fails).run();
}

}  // namespace strata::conformance
